"""Gated gangs: members bear Escher's scheduling gate, and kube-scheduler does not look at them before there is room.

What waits costs kube-scheduler nothing then, and pods that it has never tried have no back-off to wait out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from extender.app.cache.assumed_pods import PLACED_WITHIN
from extender.app.cycle.filter import GATED
from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.state.gang import NO_ROOM
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

FULL = {"cpu": 4000}
N0, N1 = NodeName("n0"), NodeName("n1")


@pytest.fixture(params=(True, False), ids=("pessimistic", "optimistic"))
def world(request: pytest.FixtureRequest) -> Iterator[GangWorld]:
    made = GangWorld(reserve_at_filter=request.param)
    for number in range(3):
        made.add_node(node(f"n{number}", FULL))
    yield made
    made.check()


def gated(name: str, size: int, *, quorum: int | None = None, created: float = 1.0) -> list[Pod]:
    """The members `<name>-0` ... at the gate; each fills a node."""
    members = gang_pods(name, size, FULL, quorum=quorum)
    return [replace(each, at_our_gate=True, created=created + index / 100) for index, each in enumerate(members)]


def at_gate(world: GangWorld) -> list[str]:
    return sorted(member.name for member in world.pods.values() if member.at_our_gate)


def fill(world: GangWorld, *names: str) -> list[Pod]:
    """Ordinary pods that are there already, one on each of these nodes."""
    there = [pod(f"on-{name}", FULL, node=NodeName(name)) for name in names]
    world.create(*there)
    return there


def test_the_gate_opens_for_all_when_the_quorum_exists(world: GangWorld) -> None:
    members = gated("train", 3)
    world.create(*members[:2])
    world.pass_time(100)
    assert at_gate(world) == ["train-0", "train-1"]
    assert not world.pending()
    world.create(members[2])
    assert at_gate(world) == []
    world.schedule()
    assert world.gangs_opened == [("train", 3)]
    assert world.turned_away == []


def test_a_gang_without_room_stays_at_it_and_is_told_why(world: GangWorld) -> None:
    fill(world, "n0")
    world.create(*gated("train", 3))
    world.schedule()
    world.pass_time(10)
    assert at_gate(world) == ["train-0", "train-1", "train-2"]
    assert world.gangs == {"train": Phase.WAITING}
    assert not world.scheduler.cache.ledger.held_for(GangKey("default", "train"))
    [said] = world.turned_away
    assert (said.member.name, said.reason) == ("train-0", NO_ROOM)
    assert said.shortfall is not None
    assert (said.shortfall.placed, said.shortfall.asked) == (2, 3)


def test_it_opens_when_room_comes_free_for_the_first_in_turn_alone(world: GangWorld) -> None:
    [there] = fill(world, "n0")
    world.create(*gated("younger", 3, created=2.0), *gated("older", 3))
    world.delete(there.uid)
    assert at_gate(world) == ["younger-0", "younger-1", "younger-2"]
    world.schedule()
    assert world.gangs == {"older": Phase.BOUND, "younger": Phase.WAITING}
    for number in range(3):
        world.finish(PodUid(f"uid-older-{number}"))
    world.schedule()
    assert world.bound("younger") == 3


def test_room_is_saved_for_one_that_waits_at_it(world: GangWorld) -> None:
    """Its members never come to filter, and yet nobody passes it for ever."""
    there = fill(world, "n0", "n1", "n2")
    world.create(*gated("train", 2))
    world.pass_time(100)
    assert [said.gang.name for said in world.told] == ["train"]
    world.delete(there[0].uid)
    late = pod("late", FULL)
    world.create(late)
    assert not world.filter(late).passed
    world.delete(there[1].uid)
    world.schedule()
    assert world.bound("train") == 2


def test_a_gate_of_others_is_waited_for(world: GangWorld) -> None:
    first, second = gated("train", 2)
    world.create(first, replace(second, gated=True))
    assert world.gangs == {"train": Phase.GATHERING}
    assert at_gate(world) == ["train-0", "train-1"]
    world.change(second.uid, gated=False)
    world.schedule()
    assert world.bound("train") == 2


def test_members_beyond_the_quorum_are_let_through_with_it(world: GangWorld) -> None:
    [there] = fill(world, "n0")
    world.create(*gated("train", 3, quorum=2))
    world.schedule()
    assert (at_gate(world), world.bound("train")) == ([], 2)
    world.delete(there.uid)
    world.schedule()
    assert world.bound("train") == 3


def test_whoever_joins_a_gang_that_runs_is_let_through(world: GangWorld) -> None:
    world.create(*gated("train", 2))
    world.schedule()
    replacement = replace(gated("train", 3, quorum=2)[2], created=50.0)
    world.create(replacement)
    world.schedule()
    assert (at_gate(world), world.bound("train")) == ([], 3)


def test_a_successor_at_the_gate_takes_the_place_of_a_member_that_is_gone(world: GangWorld) -> None:
    """One is deleted between the first Binding and its own."""
    members = gated("train", 3)
    world.create(*members)
    for member in members:
        world.filter(world.pods[member.uid])
    for member in members:
        world.bind(member.uid)
    world.write(members[0].uid)
    world.delete(members[1].uid)
    world.create(replace(members[1], uid=PodUid("uid-successor"), created=50.0))
    world.schedule()
    assert (at_gate(world), world.bound("train")) == ([], 3)


def test_of_a_gang_with_and_without_it_the_first_to_be_tried_leads_the_others_through(world: GangWorld) -> None:
    first, second, third = gated("train", 3)
    fill(world, "n0")
    world.create(replace(first, at_our_gate=False), second, third)
    assert not world.filter(world.pods[first.uid]).passed
    assert len(world.turned_away) == 2, "at the gate, and at filter"
    world.remove_node(NodeName("n0"))
    world.add_node(node("n3", FULL))
    assert at_gate(world) == []
    world.schedule()
    assert world.bound("train") == 3


def test_older_news_does_not_close_it_again(world: GangWorld) -> None:
    """kube-scheduler's watch may be ahead of ours: who has come to filter is woken by an annotation from then on."""
    fill(world, "n0", "n1", "n2")
    [late] = gated("late", 1)
    assert not world.do(world.scheduler.filter(replace(late, at_our_gate=False), [N1])).passed
    world.do(world.scheduler.observe(late))
    gang = world.scheduler.cache.gangs.of(late.uid)
    assert gang is not None
    assert [member.at_our_gate for member in gang.roster.members.values()] == [False]
    world.do(world.scheduler.forget(late))


def test_after_a_restart_those_that_were_let_through_and_those_that_were_not_come_together(world: GangWorld) -> None:
    members = gated("train", 3)
    halfway = [replace(members[0], at_our_gate=False), *members[1:]]
    world.pods.update({member.uid: member for member in halfway})
    world.do(replaced(world.scheduler, Pod, halfway))
    world.schedule()
    assert (at_gate(world), world.bound("train")) == ([], 3)


def test_a_gang_of_one_kind_does_not_let_the_other_starve(world: GangWorld) -> None:
    """Gated and not, they take turns by priority and age alike."""
    there = fill(world, "n0", "n1", "n2")
    plain = [replace(each, at_our_gate=False) for each in gated("plain", 3)]
    world.create(*plain, *gated("gated", 3, created=2.0))
    world.do(world.scheduler.filter(plain[0], [N0]))
    for each in there:
        world.delete(each.uid)
    world.schedule()
    assert world.gangs == {"plain": Phase.BOUND, "gated": Phase.WAITING}


class TestWhileAnOrdinaryPodIsBeingPlaced:
    """kube-scheduler counts it on a node of which we hear at its bind. Whoever is tried before sits out a back-off."""

    def walker(self, world: GangWorld, cpu: int = 4000, *, sent: tuple[str, ...] = ("n0", "n1", "n2")) -> Pod:
        """It has passed filter, and no bind has come."""
        made = pod("walker", {"cpu": cpu})
        world.create(made)
        assert list(world.filter(made, [NodeName(name) for name in sent]).passed) == list(sent)
        return made

    def waits(self, world: GangWorld, size: int = 3) -> list[Pod]:
        """A gang that has its plan, and is not let through."""
        members = gated("train", size)
        world.create(*members)
        assert world.gangs == {"train": Phase.PLANNED}
        assert len(at_gate(world)) == size
        return members

    def test_the_gate_stays_closed_until_its_bind_is_refused(self, world: GangWorld) -> None:
        walker = self.walker(world)
        self.waits(world)
        assert "reserved for a gang" in world.bind(walker.uid)
        assert at_gate(world) == []

    def test_or_until_it_is_bound_where_nobody_else_goes(self, world: GangWorld) -> None:
        walker = self.walker(world)
        self.waits(world, size=2)
        [free] = set(world.nodes) - {
            held.node for held in world.scheduler.cache.ledger.held_for(GangKey("default", "train"))
        }
        world.assumed[walker.uid] = free
        assert world.bind(walker.uid) == ""
        assert at_gate(world) == []

    @pytest.mark.parametrize("what", ["delete", "finish"])
    def test_or_until_it_is_gone(self, world: GangWorld, what: str) -> None:
        walker = self.walker(world)
        self.waits(world)
        getattr(world, what)(walker.uid)
        world.catch_up()
        assert at_gate(world) == []

    def test_or_until_a_watch_tells_that_it_is_bound(self, world: GangWorld) -> None:
        """By an earlier life of the service, or by somebody else."""
        walker = self.walker(world)
        self.waits(world)
        world.change(walker.uid, node=NodeName("n9"))
        world.catch_up()
        assert at_gate(world) == []

    def test_or_until_it_comes_to_filter_again_and_is_rejected(self, world: GangWorld) -> None:
        walker = self.walker(world)
        self.waits(world)
        assert not world.filter(walker, [N0, N1]).passed
        assert at_gate(world) == []

    def test_or_for_a_moment_for_it_may_go_nowhere(self, world: GangWorld) -> None:
        self.walker(world, sent=("n0",))
        fill(world, "n1", "n2")
        self.waits(world, size=1)
        world.pass_time(PLACED_WITHIN / 2)
        assert len(at_gate(world)) == 1
        assert world.scheduler.next_deadline() == pytest.approx(world.clock.now() + PLACED_WITHIN / 2)
        world.pass_time(PLACED_WITHIN / 2)
        assert at_gate(world) == []

    def test_the_last_of_several_is_waited_for(self, world: GangWorld) -> None:
        walker, second = self.walker(world), pod("second", FULL)
        world.create(second)
        assert world.filter(second, [N0, N1]).passed
        self.waits(world)
        world.bind(walker.uid)
        assert at_gate(world) == ["train-0", "train-1"], "nobody else goes to n2"
        world.bind(second.uid)
        assert at_gate(world) == []

    def test_one_that_passed_long_ago_is_in_nobodys_way(self, world: GangWorld) -> None:
        self.walker(world)
        world.pass_time(PLACED_WITHIN)
        world.create(*gated("train", 3))
        assert at_gate(world) == []

    def test_one_that_has_room_beside_it_neither(self, world: GangWorld) -> None:
        self.walker(world, cpu=1000)
        smaller = pod(asks={"cpu": 3000}).requests
        world.create(*(replace(each, requests=smaller) for each in gated("train", 3)))
        assert (at_gate(world), world.gangs) == ([], {"train": Phase.PLANNED})

    def test_nor_one_that_goes_elsewhere(self, world: GangWorld) -> None:
        self.walker(world, sent=("n2",))
        fill(world, "n2")
        world.create(*gated("train", 2))
        assert (at_gate(world), world.gangs) == ([], {"train": Phase.PLANNED})

    def test_members_without_the_gate_are_woken_as_late(self, world: GangWorld) -> None:
        there = fill(world, "n0", "n1", "n2")
        members = gang_pods("train", 3, FULL)
        world.create(*members)
        for member in members:
            assert not world.do(world.scheduler.filter(member, [N0])).passed
        for each in there[:2]:
            world.delete(each.uid)
        walker = self.walker(world, sent=("n0", "n1"))
        world.delete(there[2].uid)
        assert (world.gangs, sum(world.wakes.values())) == ({"train": Phase.PLANNED}, 1)
        world.bind(walker.uid)
        assert sum(world.wakes.values()) == 3


class TestMistakes:
    def test_the_gate_on_a_pod_of_no_gang_is_told_of_once(self, world: GangWorld) -> None:
        ask = MalformedAsk("spec.schedulingGates", "escher.dev/gang", "no gang", "remove it")
        lost = pod("lost", at_our_gate=True, gang=ask)
        world.create(lost)
        world.do(world.scheduler.observe(lost))
        assert [(said.pod.name, said.ask) for said in world.refused] == [("lost", ask)]

    @pytest.mark.parametrize("gates", [{"gated": True}, {"at_our_gate": True}])
    def test_a_filter_call_for_a_pod_with_gates_is_answered_with_no(
        self, world: GangWorld, gates: dict[str, Any]
    ) -> None:
        member = replace(gang_pods("train", 1)[0], **gates)
        assert world.do(world.scheduler.filter(member, [N1])).unresolvable == {N1: GATED}
