"""Wakes: a pod that our filters turned away is woken by the rule that turned it away, and by no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.contracts.effects import Effect
from extender.app.cycle.scheduler import Scheduler
from extender.app.policies import Policies
from extender.app.policies.filter_score import FilterScore
from extender.core.cluster import Node, Pod
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import WakePod
from extender.core.ledger.ledger import Holder, HoldingKind, Ledger
from extender.core.policy import Facts, NodeFilter, Policy, Refuse
from extender.filters import made
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import claim, gang_pods, node, pod, slot, taint
from tests.core.gang_world import FixedClock, GangWorld
from tests.performing import Performing, replaced

N1, N2 = NodeName("n1"), NodeName("n2")
DATA = ResourceKey("escher.dev/default.data")
EIGHT = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """Two full nodes, a gang that waits for both, and what comes free is saved for it at once."""
    made = GangWorld(patience=BackfillTrigger(0, 0.0))
    made.hold(gang_preemption=False)
    for name in (N1, N2):
        made.add_node(node(name))
        made.create(pod(f"filler-{name}", EIGHT, node=name, priority=100))
    members = [replace(each, priority=1) for each in gang_pods("train", 2, EIGHT)]
    made.create(*members)
    made.filter(members[0], [N1, N2])
    made.pass_time(0)
    assert made.scheduler.cache.gangs.waiting.queue.saved.gang is not None
    yield made
    made.check()


def asleep(world: GangWorld, name: str, priority: int) -> Pod:
    made = pod(name, EIGHT, priority=priority)
    world.create(made)
    world.filter(made, [N1, N2])
    assert made.uid in world.asleep
    return made


class TestRoomThatIsSaved:
    def test_for_a_gang_of_lower_priority_wakes_who_may_take_it_and_nobody_else(self, world: GangWorld) -> None:
        urgent, humble = asleep(world, "urgent", 10), asleep(world, "humble", 0)
        world.delete(PodUid(f"uid-filler-{N1}"))
        held = [
            (each.node, each.kind) for each in world.scheduler.cache.ledger.rows.holdings() if each.owner is not None
        ]
        assert (N1, HoldingKind.SAVING) in held
        assert world.wakes == {urgent.uid: 1}
        assert humble.uid in world.asleep
        assert world.filter(urgent, [N1]).passed == [N1]
        assert not world.filter(humble, [N1]).passed

    def test_wakes_who_may_take_it_now_that_the_gang_has_lost_its_claim(self, world: GangWorld) -> None:
        """Not a unit has come free, and yet it would pass."""
        world.delete(PodUid(f"uid-filler-{N1}"))
        middling = asleep(world, "middling", 1)
        members = [each for each in world.pods.values() if each.name.startswith("train")]
        for each in members:
            world.create(replace(each, uid=PodUid(f"{each.uid}-again"), name=f"{each.name}-again", priority=0))
            world.delete(each.uid)
        assert world.scheduler.cache.gangs.waiting.queue.saved.gang is not None
        assert world.wakes == {middling.uid: 1}
        assert world.filter(middling, [N1]).passed == [N1]


class Room(Performing):
    """A `Scheduler` of nodes, and whom it wakes."""

    def __init__(self, *nodes: NodeName, policies: Sequence[Policy] | None = None) -> None:
        self.woken: list[str] = []
        self.scheduler = Scheduler(FixedClock(), policies=policies)
        self.do(replaced(self.scheduler, Node, [node(name) for name in nodes]))

    def take(self, effects: Sequence[Effect]) -> None:
        self.woken += [each.pod.name for each in effects if isinstance(each, WakePod)]

    def turned_away(self, each: Pod) -> Pod:
        self.do(self.scheduler.observe(each))
        assert not self.do(self.scheduler.filter(each, list(self.scheduler.cache.nodes))).passed
        return each


def test_a_change_that_leaves_a_pod_short_of_what_only_our_filters_know_of_does_not_wake_it() -> None:
    room = Room(N1)
    room.turned_away(pod("asker", {"cpu": 100, DATA: 2}))
    room.do(room.scheduler.set_capacity(N1, DATA, 1))
    room.do(room.scheduler.observe(node(N1, {"cpu": 16000})))
    assert room.woken == []
    room.do(room.scheduler.set_capacity(N1, DATA, 2))
    assert room.woken == ["asker"]


def test_a_node_that_a_pod_does_not_tolerate_does_not_wake_it_before_the_taint_is_gone() -> None:
    room = Room(N1)
    room.turned_away(pod("asker", {"cpu": 100, DATA: 1}))
    room.do(room.scheduler.observe(node(N2, taints=(taint("mine"),))))
    room.do(room.scheduler.set_capacity(N2, DATA, 1))
    assert room.woken == []
    room.do(room.scheduler.observe(node(N2)))
    assert room.woken == ["asker"]


def test_pods_that_are_alike_are_judged_as_one_and_each_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    asked = FilterScore.passes

    def passes(self: FilterScore, each: Pod) -> Callable[[NodeName], bool]:
        judged.append(each.name)
        return asked(self, each)

    monkeypatch.setattr(FilterScore, "passes", passes)
    room = Room(N1)
    for number in range(500):
        room.turned_away(pod(f"asker-{number}", {"cpu": 100, DATA: 1}))
    room.turned_away(pod("other", {"cpu": 100, DATA: 2}))
    judged.clear()
    room.do(room.scheduler.set_capacity(N1, DATA, 1))
    assert len(judged) == 2
    assert sorted(room.woken) == sorted(f"asker-{number}" for number in range(500))
    judged.clear()
    room.do(room.scheduler.observe(node(N1, {"cpu": 9000})))
    assert judged == ["other"]


def test_what_is_held_for_a_pod_counts_for_that_one_alone() -> None:
    room = Room(N1, N2)
    room.do(room.scheduler.set_capacity(N1, DATA, 1))
    holder, other = (pod(name, {"cpu": 100, DATA: 1}) for name in ("holder", "other"))
    room.do(room.scheduler.observe(holder))
    assert room.do(room.scheduler.filter(holder, [N1])).passed == [N1]
    assert not room.do(room.scheduler.filter(holder, [N2])).passed
    room.turned_away(other)
    room.do(room.scheduler.observe(node(N1, labels={"a": "b"})))
    assert room.woken == ["holder"]


holdings = st.lists(
    st.tuples(st.sampled_from((N1, N2)), st.integers(0, 8), st.integers(0, 2), st.booleans()), max_size=5
)


@given(holdings, st.integers(0, 8), st.integers(0, 3), st.booleans(), st.booleans())
def test_what_wakes_is_what_the_filter_lets_pass_of_what_kube_scheduler_offers(
    held: list[tuple[NodeName, int, int, bool]], cpu: int, data: int, gives_way: bool, cordoned: bool
) -> None:
    ledger = Ledger()
    nodes = {name: node(name, unschedulable=cordoned and name == N2) for name in (N1, N2)}
    for name, each in nodes.items():
        ledger.capacity.set_node(name, each.allocatable)
        ledger.capacity.set(name, DATA, 2)
    giving_way: dict[NodeName, list[Holder]] = {}
    for number, (on, cores, units, gives) in enumerate(held):
        asks = {"cpu": 1000 * cores, DATA: units}
        wanted = slot(f"s{number}", on, asks) if gives else claim(f"c{number}", on, asks)
        if not ledger.commit([wanted]).conflicts and gives and gives_way:
            giving_way.setdefault(on, []).append(wanted.holder)
    judging = Policies(made(), Facts(ledger, nodes, {}, lambda each: giving_way)).filter_score
    asker = pod("asker", {"cpu": 1000 * cpu, DATA: data})
    could_go = judging.passes(asker)
    for name in nodes:
        offered = not nodes[name].unschedulable and judging.room(asker)(name) is None
        passed = judging.verdict(asker, [name]).passed == [name]
        assert could_go(name) == (offered and passed)
        if could_go(name):
            assert judging.refusal(asker, name) is None


def test_a_policy_of_ones_own_is_asked_for_wakes_too() -> None:
    closed = {N1}

    class Gatekeeper:
        name = "gatekeeper"

        def filter(self, each: Pod, facts: Facts) -> NodeFilter | None:
            return lambda name: Refuse("closed") if name in closed else None

    room = Room(N1, policies=[*made(), Gatekeeper()])
    room.turned_away(pod("asker"))
    room.do(room.scheduler.observe(node(N1, labels={"a": "b"})))
    assert room.woken == []
    closed.clear()
    room.do(room.scheduler.observe(node(N1)))
    assert room.woken == ["asker"]
