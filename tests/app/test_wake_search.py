"""Whom a change helps is found in slices of work, and all of them are found: a slow twin looks at everybody."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from extender.app import wake_search
from extender.app.cache.cache import Rules
from extender.app.contracts.effects import Effect, PolicyFailed
from extender.app.cycle.scheduler import Scheduler
from extender.app.policies.filter_score import FilterScore
from extender.core.cluster import Node, Pod
from extender.core.common.work_budget import Work
from extender.core.gangs.state.gang import WakePod
from extender.core.names import GangKey
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation, Parameters, PolicyInForce
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.filters.escher_policies.anti_affinity import PolicyAntiAffinity
from extender.filters.escher_policies.feasible import PolicyFeasible
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from tests.builders import gone, node, pod
from tests.core.gang_world import FixedClock
from tests.filters.escher_policies.world import ZONE
from tests.performing import Performing

A_KIND = 5


@pytest.fixture(autouse=True)
def a_slice_may_end_after_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_search, "_AT_LEAST", 1)


def made(number: int, **labels: str) -> Node:
    name = f"n{number}"
    return node(name, {"cpu": 100, "pods": 110}, labels={HOSTNAME: name, ZONE: f"z{number % 3}", **labels})


def allowed(kinds: int | None) -> Allowance:
    return UNLIMITED if kinds is None else Allowance({Counted.WAITING_KINDS: kinds})


@dataclass
class Service(Performing):
    """A `Scheduler` with nodes of 100 mCPU in three zones. `effects`: all that it wanted done."""

    nodes: int
    slice: int = 1_000
    kinds: int | None = None
    """That a namespace may have waiting."""
    clock: FixedClock = field(default_factory=FixedClock)
    effects: list[Effect] = field(default_factory=list)
    all_effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.clock, Rules(allowances=(allowed(self.kinds), {})))
        self.work = self.scheduler._requeue.waking.work
        self.work.limit = self.slice
        for number in range(self.nodes):
            self.do(self.scheduler.observe(made(number)))

    def sent(self, each: Pod) -> list[NodeName]:
        """kube-scheduler asks about the nodes that have room, as it knows."""
        cache = self.scheduler.cache
        return [name for name in cache.nodes if cache.ledger.rows.free(name, CPU) >= each.requests[CPU]]

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        self.all_effects += effects

    def fill(self) -> list[Pod]:
        """One bound pod takes all of each node."""
        fillers = [pod(f"filler-{name}", {"cpu": 100}, node=name) for name in self.scheduler.cache.nodes]
        for each in fillers:
            self.do(self.scheduler.observe(each))
        return fillers

    def wait(self, number: int, cpu: int, **facts: Any) -> Pod:
        each = pod(f"w{number}", {"cpu": cpu}, **facts)
        self.do(self.scheduler.observe(each))
        assert not self.do(self.scheduler.filter(each, self.sent(each))).passed
        return each

    def govern(self, parameters: Parameters | None, name: str = "it") -> None:
        policy = None if parameters is None else PolicyInForce(parameters, ())
        self.do(self.scheduler.govern("default", name, policy))

    def tick(self) -> int:
        """One turn of the event loop; the steps that were taken in it."""
        self.do(self.scheduler.tick())
        return self.work.spent

    def do_the_rest(self) -> list[int]:
        """The steps of each turn."""
        steps = list[int]()
        while self.scheduler.more_to_do:
            assert self.scheduler.next_deadline() == self.clock.steady(), "all of it is done at this moment of time"
            assert len(steps) < 100_000, "it never ends"
            steps.append(self.tick())
        return steps

    def woken(self) -> list[str]:
        """Since the last call."""
        found = [effect.pod.name for effect in self.effects if isinstance(effect, WakePod)]
        self.effects.clear()
        return found

    def helped(self) -> set[PodUid]:
        """The slow twin: those that are asleep and could go to a node."""
        cache = self.scheduler.cache
        asleep = [cache.pods[uid] for uid in self.scheduler.asleep()]
        return {each.uid for each in asleep if any(map(cache.policies.filter_score.passes(each), cache.nodes))}

    def index_is_right(self) -> None:
        """It leaves out no node to which a pod could go, and what is said of one pod is true of all that are alike."""
        judging, nodes = self.scheduler.cache.policies.filter_score, self.scheduler.cache.nodes
        said: dict[Hashable, set[NodeName]] = {}
        for uid in self.scheduler.asleep():
            each = self.scheduler.cache.pods[uid]
            could_go = set(filter(judging.passes(each), nodes))
            assert could_go <= set(judging.with_room(each, Work()))
            refused = set(filter(judging.refuses_alike(each), nodes))
            assert not could_go & refused
            assert said.setdefault(judging.alike(each), refused) == refused
            assert judging.alike(each) is not None or not refused


@pytest.mark.parametrize("limit", [50, 1_000])
def test_a_departure_is_looked_at_in_slices_for_all_kinds_that_wait(limit: int) -> None:
    service = Service(nodes=10, slice=limit)
    [gone_soon, *_] = service.fill()
    waiting = [service.wait(number, cpu=1 + number % 100, namespace=f"ns{number % 7}") for number in range(400)]
    service.do_the_rest()
    service.tick()
    service.woken()
    service.do(service.scheduler.forget(gone(gone_soon.uid)))
    turns = [service.work.spent, *service.do_the_rest()]
    assert max(turns) <= limit + A_KIND + 1
    assert 400 * (A_KIND + 1) <= sum(turns) <= 400 * (2 * A_KIND + 1)
    assert sorted(service.woken()) == sorted(each.name for each in waiting)


def test_a_namespace_of_many_kinds_that_is_to_be_looked_at_anew_keeps_no_other_waiting() -> None:
    service = Service(nodes=100, slice=100)
    [gone_soon, *_] = service.fill()
    for number in range(100):
        service.wait(number, cpu=1 + number, namespace="many")
    few = [service.wait(number, cpu=100, namespace=f"few{number}") for number in (100, 101, 102)]
    service.do_the_rest()
    service.woken()
    service.scheduler._requeue.governed_anew("many")
    service.tick()
    assert service.scheduler.more_to_do
    service.do(service.scheduler.forget(gone(gone_soon.uid)))
    service.tick()
    assert {each.name for each in few} <= set(service.woken())
    assert service.scheduler.more_to_do, "many kinds of the other namespace are left"


def test_kinds_beyond_the_quota_of_their_namespace_keep_none_within_it_waiting() -> None:
    service = Service(nodes=4, slice=50, kinds=10)
    fillers = service.fill()
    waiting = [service.wait(number, cpu=1 + number % 100, annotations={"a": str(number)}) for number in range(2_000)]
    within = {each.name for each in waiting[:10]}
    assert service.scheduler.waiting_kinds("default") == (10, 1_990)
    service.do_the_rest()
    service.tick()
    service.woken()
    service.do(service.scheduler.forget(gone(fillers[0].uid)))
    turns = 0
    while not within <= {effect.pod.name for effect in service.effects if isinstance(effect, WakePod)}:
        service.tick()
        turns += 1
    assert turns <= 2 * 10 * (A_KIND + 1) // 50, "they take turns with those beyond"
    # All nodes are to be looked at again, for all of them, while those beyond were not even looked at once.
    service.scheduler._requeue.governed_anew("default")
    service.do_the_rest()
    assert sorted(service.woken()) == sorted(each.name for each in waiting)
    assert service.scheduler.waiting_kinds("default") == (0, 0)


def test_where_nothing_was_freed_none_of_the_kinds_that_wait_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether others wait for the room of a gang that holds none is asked in one step."""
    service = Service(nodes=2)
    service.fill()
    for number in range(20):
        service.wait(number, cpu=1 + number)
    service.do_the_rest()
    asked = list[Pod]()

    def nowhere(self: FilterScore, pod: Pod, *_: object) -> Callable[[NodeName], bool]:
        asked.append(pod)
        return lambda node: False

    monkeypatch.setattr(FilterScore, "passes", nowhere)
    assert not service.scheduler.cache.gangs.planning.plans.others_wait(GangKey("other", "gang"))
    assert asked == []


def test_a_change_of_policies_is_looked_at_in_slices_on_all_nodes() -> None:
    service = Service(nodes=100)
    service.govern(CoLocation(topology_key="example.com/rack"))
    for number in range(50):
        service.wait(number, cpu=1 + number)
    service.do_the_rest()
    service.tick()
    service.woken()
    service.do(service.scheduler.observe(made(0, other="label")))
    turns = [service.work.spent, *service.do_the_rest()]
    assert len(turns) > 50 * 100 // 1_000
    # What was told for ever is looked at besides.
    assert max(turns) <= 1_000 + A_KIND + 50 + 1 + 500
    assert service.woken() == []
    service.do(service.scheduler.observe(made(0, **{"example.com/rack": "one"})))
    service.do_the_rest()
    assert len(service.woken()) == 50


def test_what_changes_in_the_midst_is_looked_at_the_next_time_through() -> None:
    """The first kinds were compared with the node already when it gained room."""
    service = Service(nodes=4, slice=10)
    fillers = service.fill()
    waiting = [service.wait(number, cpu=100 - number) for number in range(50)]
    service.do_the_rest()
    service.tick()
    half = pod("half", {"cpu": 60}, node=NodeName("n0"))
    service.do(service.scheduler.forget(gone(fillers[0].uid)))
    service.do(service.scheduler.observe(half))
    service.woken()
    assert service.scheduler.more_to_do
    service.tick()
    service.do(service.scheduler.forget(gone(half.uid)))
    service.do_the_rest()
    assert service.helped() == set()
    assert not {each.uid for each in waiting} & set(service.scheduler.asleep())


def test_one_that_becomes_like_others_in_the_midst_is_not_missed() -> None:
    """They were looked at already, when they could not go anywhere yet; it was not."""
    service = Service(nodes=4, slice=6)
    fillers = service.fill()
    last = [service.wait(number, cpu=10 + number) for number in range(20)][-1]
    service.do_the_rest()
    service.tick()
    service.do(service.scheduler.forget(gone(fillers[0].uid)))
    assert service.scheduler.more_to_do
    assert service.scheduler.is_asleep(last.uid)
    service.do(service.scheduler.observe(replace(last, annotations={"escher.dev/other": "mark"})))
    service.do_the_rest()
    assert last.name in service.woken()


@pytest.mark.parametrize("beyond", [1, 2])
def test_one_that_changes_its_kind_and_comes_within_the_quota_is_not_missed(beyond: int) -> None:
    """The kind within was looked at and woken; those beyond were not begun with."""
    service = Service(nodes=4, slice=A_KIND + 1, kinds=1)
    fillers = service.fill()
    first, *others = [service.wait(number, cpu=10 + number) for number in range(1 + beyond)]
    service.do_the_rest()
    service.tick()
    service.woken()
    service.do(service.scheduler.forget(gone(fillers[0].uid)))
    assert service.woken() == [first.name]
    changed = replace(others[-1], annotations={"escher.dev/other": "mark"})
    service.do(service.scheduler.observe(changed))
    service.do_the_rest()
    assert sorted(service.woken()) == sorted(each.name for each in others)


def test_a_kind_that_goes_in_the_midst_of_a_pass_makes_room_for_one_beyond_the_quota() -> None:
    service = Service(nodes=4, slice=A_KIND + 1, kinds=1)
    fillers = service.fill()
    first, *_ = [service.wait(number, cpu=90 + number) for number in range(5)]
    service.do_the_rest()
    service.tick()
    service.do(service.scheduler.observe(pod("half", {"cpu": 60}, node=NodeName("n0"))))
    service.do(service.scheduler.forget(gone(fillers[0].uid)))
    service.tick()
    assert [service.scheduler.waiting_kinds("default"), service.scheduler.more_to_do] == [(1, 4), True]
    service.do(service.scheduler.forget(gone(first.uid)))
    service.do_the_rest()
    assert service.scheduler.waiting_kinds("default") == (1, 3)


def test_what_was_told_for_ever_is_looked_at_again_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(nodes=100)
    service.govern(CoLocation(topology_key="example.com/rack"))
    waiting = [service.wait(number, cpu=1 + number) for number in range(30)]
    service.do_the_rest()
    service.woken()
    looked, never = [0], PolicyFeasible._never

    def counting(self: PolicyFeasible, *args: object) -> object:
        looked[0] += 1
        return never(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PolicyFeasible, "_never", counting)
    service.tick()
    service.do(service.scheduler.observe(made(0, other="label")))
    turns = [looked[0]]
    while service.scheduler.more_to_do:
        before = looked[0]
        service.tick()
        turns.append(looked[0] - before)
    assert sum(turns) == 30
    assert max(turns) <= 6, "of 100 nodes each"
    assert service.woken() == []
    service.govern(CoLocation(size=1, topology_key=ZONE))
    service.do_the_rest()
    assert sorted(service.woken()) == sorted(each.name for each in waiting)


def of_full_zones(waiting: int, nodes: int = 300, **service: Any) -> Service:
    """Pods of two policies wait, each of a kind of its own: all nodes have room, and no zone is left to them."""
    made_of = Service(nodes=nodes, slice=200, **service)
    for name in ("one", "two"):
        made_of.govern(AntiAffinity(topology_key=ZONE), name)
    for zone in range(3):
        made_of.do(made_of.scheduler.observe(pod(f"in-{zone}", {"cpu": 1}, node=NodeName(f"n{zone}"))))
    for number in range(waiting):
        made_of.wait(number, cpu=1 + number % 90)
    made_of.do_the_rest()
    made_of.tick()
    made_of.woken()
    return made_of


def test_pods_whom_a_policy_keeps_from_all_nodes_are_not_compared_with_each_of_them() -> None:
    few, many = of_full_zones(1), of_full_zones(80)
    costs = list[int]()
    for service in (few, many):
        service.govern(None, "two")
        costs.append(service.work.spent + sum(service.do_the_rest()))
        assert service.woken() == []
    assert costs[1] < costs[0] + 79 * 50, "a sixth of a step for each node, at most"


def test_kinds_that_have_room_nowhere_are_not_compared_with_all_nodes_that_gain_something_else() -> None:
    service = Service(nodes=300, slice=200)
    service.fill()
    waiting = [service.wait(number, cpu=1 + number) for number in range(80)]
    service.do_the_rest()
    service.tick()
    service.do(service.scheduler.set_capacities(UNITS, dict.fromkeys(service.scheduler.cache.nodes, 1)))
    assert service.work.spent + sum(service.do_the_rest()) < len(waiting) * 30
    assert service.woken() == []


def test_one_that_leaves_a_zone_is_followed_by_all_whom_it_kept_out() -> None:
    service = of_full_zones(80)
    service.do(service.scheduler.forget(gone(pod("in-1").uid)))
    service.do_the_rest()
    assert len(service.woken()) == 80


def test_a_node_that_returns_with_pods_that_stand_on_it_may_make_another_place_the_emptiest() -> None:
    service = Service(nodes=0)
    service.govern(Balance(topology_key=ZONE))
    there = [
        node(name, {"cpu": 100, "pods": 110}, labels={HOSTNAME: name, ZONE: zone})
        for name, zone in (("a", "z0"), ("b", "z1"), ("c", "z1"))
    ]
    for each in there:
        service.do(service.scheduler.observe(each))
    service.do(service.scheduler.observe(pod("fills", {"cpu": 100}, namespace="other", node="b")))
    service.do(service.scheduler.observe(pod("in-z0", {"cpu": 10}, node="a")))
    service.do(service.scheduler.observe(pod("in-z1", {"cpu": 100}, node="c")))
    service.do(service.scheduler.forget(there[2]))
    service.wait(1, cpu=50)
    service.do_the_rest()
    service.woken()
    service.do(service.scheduler.observe(there[2]))
    service.do_the_rest()
    assert service.woken() == ["w1"]


def test_what_a_policy_from_outside_says_that_nobody_can_compare_is_its_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyAntiAffinity, "alike", lambda policy, pod: [1])
    service = of_full_zones(3)
    service.do(service.scheduler.forget(gone(pod("in-1").uid)))
    service.do_the_rest()
    assert len(service.woken()) == 3
    assert any(isinstance(each, PolicyFailed) for each in service.all_effects)


# -- the slow twin -------------------------------------------------------------------------------------------------

PARAMETERS: tuple[Parameters, ...] = (
    AntiAffinity(),
    AntiAffinity(topology_key=ZONE),
    Balance(topology_key=ZONE),
    CoLocation(topology_key=ZONE),
    CoLocation(size=2, topology_key=ZONE),
)
UNITS = ResourceKey("escher.dev/units")


@pytest.mark.parametrize("kinds", [None, 0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_at_rest_nobody_sleeps_who_could_go_somewhere(
    seed: int, kinds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(wake_search, "_FEW", rng.choice((0, 50)))
    service = Service(nodes=6, slice=25, kinds=kinds)
    service.scheduler.pod_events.anew.work.limit = 60
    waiting: dict[PodUid, Pod] = {}
    bound: dict[PodUid, Pod] = {}

    def try_again(names: Iterable[str]) -> None:
        """kube-scheduler tries those that are woken, and binds who passes."""
        for each in [each for each in waiting.values() if each.name in set(names)]:
            if passed := service.do(service.scheduler.filter(each, service.sent(each))).passed:
                del waiting[each.uid]
                bound[each.uid] = replace(each, node=passed[0])
                service.do(service.scheduler.observe(bound[each.uid]))

    for number in range(200):
        draw = rng.random()
        if draw < 0.4:
            asked = {"cpu": rng.choice((20, 50, 90)), UNITS: rng.choice((0, 0, 2))}
            chosen = {ZONE: "z1"} if rng.random() < 0.3 else {}
            new = pod(f"p{number}", asked, namespace=rng.choice(("default", "other")), node_selector=chosen)
            waiting[new.uid] = new
            service.do(service.scheduler.observe(new))
            try_again([new.name])
        elif draw < 0.65 and bound:
            uid = rng.choice(list(bound))
            del bound[uid]
            service.do(service.scheduler.forget(gone(uid)))
        elif draw < 0.75:
            service.do(service.scheduler.observe(made(rng.randrange(6), other=str(number))))
        elif draw < 0.85:
            service.govern(rng.choice((None, *PARAMETERS)), rng.choice(("one", "two")))
        elif draw < 0.9 and waiting:
            uid = rng.choice(list(waiting))
            waiting[uid] = replace(waiting[uid], annotations={"escher.dev/other": rng.choice("abc")})
            service.do(service.scheduler.observe(waiting[uid]))
        elif draw < 0.92 and kinds is not None:
            service.scheduler.cache.isolation.set(allowed(rng.randrange(4)), {})
        elif draw < 0.96:
            service.do(service.scheduler.set_capacity(NodeName(f"n{rng.randrange(6)}"), UNITS, rng.randrange(4)))
        else:
            service.tick()
        if number % 4 == 0:
            service.index_is_right()
        if rng.random() < 0.3:
            try_again(service.woken())
    for _ in range(1_000):
        service.do_the_rest()
        assert service.helped() == set()
        if not (woken := service.woken()):
            break
        try_again(woken)
    else:
        raise AssertionError("they wake each other for ever")
    assert service.scheduler.cache.violations() == []
