"""Waiting fairly: priority, then age; passed within a bound; room saved for the one whose turn it is, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.backfill import RECHOOSE_SECONDS
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import NO_ROOM, Gang, RoomSaved
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holding, HoldingKind
from extender.core.names import GangKey
from extender.filters.reservation_guard import REASON
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

FULL = {"cpu": 8000}
PASSES, SECONDS = 3, 60.0


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(patience=BackfillTrigger(PASSES, SECONDS))
    yield made
    made.check()


def nodes(world: GangWorld, count: int) -> list[NodeName]:
    """Nodes of 8 CPU."""
    for number in range(len(world.nodes), len(world.nodes) + count):
        world.add_node(node(f"n{number}"))
    return list(world.nodes)


def filler(world: GangWorld, where: NodeName, cpu: int = 8000) -> PodUid:
    """An ordinary pod that runs there, and that nobody preempts; by default it fills the node."""
    made = pod(f"filler-{where}-{cpu}", {"cpu": cpu}, node=where, priority=100)
    world.create(made)
    return made.uid


def waiting(world: GangWorld, name: str, size: int, *, priority: int = 0, created: float = 0) -> list[Pod]:
    """A gang of members that fill a node each, turned away."""
    members = [replace(each, priority=priority, created=created) for each in gang_pods(name, size, FULL)]
    world.create(*members)
    for member in members:
        # As when a node has room for one of them, and kube-scheduler asks.
        verdict = world.filter(member, list(world.nodes))
        assert set(verdict.unresolvable.values()) == {NO_ROOM}
    return members


def placed(world: GangWorld, name: str, size: int, *, created: float) -> None:
    """A gang that comes and finds room."""
    world.create(*(replace(each, created=created) for each in gang_pods(name, size, FULL)))
    world.schedule()
    assert world.gangs[name] is Phase.BOUND


def saved(world: GangWorld) -> dict[NodeName, int]:
    """CPU that is saved, by node; also where it is none yet."""
    found: dict[NodeName, int] = {}
    for held in savings(world):
        found[held.node] = found.get(held.node, 0) + held.units.get(CPU, 0)
    return found


def saved_for(world: GangWorld) -> str | None:
    gang = world.scheduler.cache.gangs.waiting.queue.saved.gang
    return None if gang is None else gang.key.name


def take_away(world: GangWorld, gang: str) -> None:
    for uid in [uid for uid in world.pods if uid.startswith(f"uid-{gang}-")]:
        world.delete(uid)


class TestOrder:
    def test_room_goes_to_the_higher_priority_then_to_the_older(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        first, second = filler(world, n0), filler(world, n1)
        waiting(world, "young", 2, created=30)
        waiting(world, "old", 2, created=20)
        waiting(world, "urgent", 2, created=40, priority=5)
        order = []
        world.delete(first)
        world.delete(second)
        for _ in range(3):
            world.schedule()
            [bound] = [name for name, phase in world.gangs.items() if phase is Phase.BOUND]
            order.append(bound)
            take_away(world, bound)
        assert order == ["urgent", "old", "young"]

    def test_room_for_two_that_are_alike_is_given_to_both_at_once(self, world: GangWorld) -> None:
        [n0] = nodes(world, 1)
        filler(world, n0)
        waiting(world, "one", 1, created=1)
        waiting(world, "two", 1, created=2)
        world.add_node(node("large", {"cpu": 16000}))
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.PLANNED}

    def test_one_that_cannot_go_where_room_is_does_not_keep_those_after_it_from_being_tried(
        self, world: GangWorld
    ) -> None:
        [n0] = nodes(world, 1)
        full = filler(world, n0)
        picky = [replace(each, node_selector={"zone": "x"}, created=1) for each in gang_pods("picky", 1, FULL)]
        world.create(*picky)
        world.filter(picky[0], list(world.nodes))
        waiting(world, "young", 1, created=2)
        world.add_node(node("of-zone-x", {"cpu": 1000}, labels={"zone": "x"}))
        world.delete(full)
        assert world.gangs == {"picky": Phase.WAITING, "young": Phase.PLANNED}

    def test_age_is_that_of_the_oldest_member_and_survives_a_restart(self, world: GangWorld) -> None:
        [n0] = nodes(world, 1)
        full = filler(world, n0)
        young, old = waiting(world, "young", 1, created=30), waiting(world, "old", 1, created=20)
        again = GangWorld(patience=world.patience)
        again.add_node(node("n0"))
        again.do(replaced(again.scheduler, Pod, [world.pods[full], *young, *old]))
        again.pods.update(world.pods)
        for member in (*young, *old):
            again.filter(member, list(again.nodes))
        again.delete(full)
        again.schedule()
        assert again.gangs == {"young": Phase.WAITING, "old": Phase.BOUND}


class TestTheBound:
    def test_a_larger_gang_is_passed_so_often_and_then_what_comes_free_is_saved_for_it(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        holder = filler(world, n0)
        waiting(world, "large", 2, created=1)
        for number in range(PASSES):
            assert saved_for(world) is None
            placed(world, f"small{number}", 1, created=10 + number)
            take_away(world, f"small{number}")
        assert saved_for(world) == "large"
        assert saved(world) == {n0: 0, n1: 8000}
        world.create(*(replace(each, created=50) for each in gang_pods("next", 1, FULL)))
        world.schedule()
        assert world.gangs["next"] is Phase.WAITING
        world.delete(holder)
        world.schedule()
        assert world.gangs["large"] is Phase.BOUND
        assert saved(world) == {}

    def test_who_is_passed_by_nobody_waits_no_longer_than_its_patience(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0)
        waiting(world, "large", 2)
        world.pass_time(SECONDS - 1)
        assert saved_for(world) is None
        due = world.scheduler.next_deadline()
        assert due == world.clock.now() + 1
        world.pass_time(1)
        assert saved(world) == {n0: 0, n1: 8000}

    def test_a_gang_that_no_empty_cluster_could_hold_is_never_saved_for_and_stands_in_nobodys_way(
        self, world: GangWorld
    ) -> None:
        [n0, _] = nodes(world, 2)
        filler(world, n0)
        waiting(world, "hopeless", 3, created=1)
        waiting(world, "large", 2, created=2)
        world.pass_time(SECONDS)
        assert saved_for(world) == "large"
        nodes(world, 1)
        assert world.gangs["large"] is Phase.PLANNED
        world.schedule()
        world.pass_time(SECONDS)
        assert saved_for(world) == "hopeless"

    def test_room_is_saved_for_one_gang_at_a_time(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        for name in names[:3]:
            filler(world, name)
        waiting(world, "one", 3, created=1)
        waiting(world, "two", 3, created=2)
        world.pass_time(SECONDS)
        world.delete(PodUid("uid-filler-n0-8000"))
        assert saved_for(world) == "one"
        owners = {held.owner for held in savings(world)}
        assert owners == {GangKey("default", "one")}

    def test_a_gang_that_kube_scheduler_never_asks_about_has_its_turn_too(self, world: GangWorld) -> None:
        """Others take each node before its members are tried on it."""
        [n0, n1] = nodes(world, 2)
        waiting(world, "known", 3)  # so that we know who asks us
        full = [filler(world, n0), filler(world, n1)]
        members = [replace(each, created=5) for each in gang_pods("unseen", 2, FULL)]
        world.create(*members)
        assert world.scheduler.next_deadline() == world.clock.now() + SECONDS
        world.pass_time(SECONDS)
        assert saved_for(world) == "unseen"
        world.wakes.clear()
        for uid in full:
            world.delete(uid)
        assert world.gangs["unseen"] is Phase.PLANNED
        assert world.wakes == {member.uid: 1 for member in members}

    def test_a_gang_that_kube_scheduler_never_asks_about_is_planned_when_its_patience_ends_if_there_is_room(
        self, world: GangWorld
    ) -> None:
        nodes(world, 2)
        waiting(world, "known", 3)  # so that we know who asks us
        members = gang_pods("unseen", 2, FULL)
        world.create(*members)
        world.pass_time(SECONDS)
        assert world.gangs["unseen"] is Phase.PLANNED
        assert world.wakes == {member.uid: 1 for member in members}

    def test_a_gang_that_kube_scheduler_never_asks_about_goes_by_its_members_as_they_are(
        self, world: GangWorld
    ) -> None:
        [n0, n1] = nodes(world, 2)
        waiting(world, "known", 3)  # so that we know who asks us
        full = [filler(world, n0), filler(world, n1)]
        members = gang_pods("unseen", 2, FULL)
        world.create(*members)
        world.pass_time(SECONDS)
        assert saved_for(world) == "unseen"
        world.create(*(replace(each, gang=gang_ask("unseen", 1)) for each in members))
        world.check()
        world.delete(full[0])
        assert world.gangs["unseen"] is Phase.PLANNED

    def test_who_had_a_plan_may_be_passed_as_often_as_all_others(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        members = [replace(each, created=1) for each in gang_pods("large", 2, FULL)]
        world.create(*members)
        assert world.filter(members[0]).passed
        filler(world, n0)
        world.assumed.clear()
        world.pass_time(10)
        assert world.gangs == {"large": Phase.WAITING}
        for number in range(PASSES):
            assert saved_for(world) is None
            placed(world, f"small{number}", 1, created=10 + number)
            take_away(world, f"small{number}")
        assert saved_for(world) == "large"

    def test_a_gang_that_was_asked_about_before_it_was_complete_waits_from_when_it_is(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        filler(world, n0)
        first, second = gang_pods("late", 2, FULL)
        world.create(first)
        world.filter(first, list(world.nodes))
        world.pass_time(5)
        world.create(second)
        world.pass_time(SECONDS - 1)
        assert saved_for(world) is None
        world.pass_time(1)
        assert saved_for(world) == "late"

    def test_a_gang_has_its_turn_with_the_lowest_priority_of_its_members(self, world: GangWorld) -> None:
        [n0] = nodes(world, 1)
        filler(world, n0)
        waiting(world, "old", 1, created=1)
        waiting(world, "young", 1, created=2)
        turns = world.scheduler.cache.gangs.waiting.queue
        assert turns.first() is world.scheduler.cache.gangs.by_key[GangKey("default", "old")]
        low = replace(gang_pods("young", 2, FULL, quorum=1)[0], created=2)
        world.create(replace(gang_pods("young", 2, FULL, quorum=1)[1], created=3, priority=5))
        assert turns.first() is world.scheduler.cache.gangs.by_key[GangKey("default", "old")]
        world.delete(low.uid)
        assert turns.first() is world.scheduler.cache.gangs.by_key[GangKey("default", "young")]

    def test_a_gang_is_lined_up_though_nobody_has_ever_asked_about_any(self, world: GangWorld) -> None:
        """Others are overlapping, and there is never a moment in which all of them are gone."""
        names = nodes(world, 4)
        for where in names:
            filler(world, where, 1000)
        world.create(*(replace(each, created=1) for each in gang_pods("whole", 4, FULL)))
        world.pass_time(SECONDS)
        assert (
            world.scheduler.cache.gangs.by_key[GangKey("default", "whole")] in world.scheduler.cache.gangs.waiting.queue
        )
        before: list[Pod] = []
        for minute in range(20):
            small = [replace(each, created=10 + minute) for each in gang_pods(f"small{minute}", 4)]
            world.create(*small)
            world.schedule()
            for each in before:
                world.delete(each.uid)
            before = small
            if minute == 5:
                for where in names:
                    world.delete(PodUid(f"uid-filler-{where}-1000"))
            world.schedule()
            world.pass_time(60)
            world.schedule()
        assert world.bound("whole") == 4

    def test_nothing_is_saved_for_pods_of_a_scheduler_that_does_not_ask_us(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        filler(world, n0)
        world.create(*(replace(each, scheduler="another") for each in gang_pods("elsewhere", 2, FULL)))
        world.pass_time(10 * SECONDS)
        assert saved(world) == {}

    def test_members_with_scheduling_gates_are_not_waited_for_nor_saved_for(self, world: GangWorld) -> None:
        nodes(world, 2)
        members = gang_pods("gated", 2, FULL)
        world.create(replace(members[0], gated=True), members[1])
        assert world.gangs == {"gated": Phase.GATHERING}
        world.create(members[0])
        world.schedule()
        assert world.gangs == {"gated": Phase.BOUND}


class TestWhatIsSaved:
    def test_parts_of_places_are_saved_as_they_come_free(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        running = [filler(world, where, cpu) for where in (n0, n1) for cpu in (5000, 3000)]
        waiting(world, "large", 2)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0, n1: 0}
        world.delete(running[0])
        assert saved(world) == {n0: 5000, n1: 0}
        world.create(pod("ordinary", {"cpu": 2000}))
        assert set(world.filter(world.pods[PodUid("uid-ordinary")]).unresolvable.values()) == {REASON}
        world.delete(running[3])
        assert saved(world) == {n0: 5000, n1: 3000}
        world.delete(running[1])
        world.delete(running[2])
        world.schedule()
        assert world.bound("large") == 2

    def test_a_node_that_it_waits_for_is_guarded_before_anything_is_free_there(self, world: GangWorld) -> None:
        """kube-scheduler hears of a departure before we do, and would give the room to somebody else."""
        [n0] = nodes(world, 1)
        gone = filler(world, n0)
        waiting(world, "large", 1)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0}
        world.delete(gone, seen=False)
        world.create(pod("quick", FULL), seen=False)
        assert world.filter(world.pods[PodUid("uid-quick")]).unresolvable == {n0: REASON}
        world.catch_up()
        world.schedule()
        assert world.bound("large") == 1

    def test_what_is_saved_moves_to_where_more_comes_free(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0, 6000)
        full = filler(world, n1)
        waiting(world, "large", 1)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 2000}
        world.delete(full)
        world.schedule()
        assert world.bound("large") == 1

    def test_its_members_wait_for_all_of_it_though_kube_scheduler_asks_again(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0)
        members = waiting(world, "large", 2)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0, n1: 8000}
        for member in members:
            assert set(world.filter(member, [n0, n1]).unresolvable.values()) == {NO_ROOM}

    def test_what_a_stranger_takes_of_it_is_saved_no_more_and_the_rest_is(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        full = filler(world, n0)
        filler(world, n1)
        waiting(world, "large", 3)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0, n1: 0, n2: 8000}
        world.create(pod("foreign", {"cpu": 3000}, node=n2, priority=100))
        world.delete(full)
        assert saved(world) == {n0: 8000, n1: 0, n2: 5000}
        small = filler(world, n0, 1000)
        assert saved(world)[n2] == 5000
        world.delete(small)
        assert saved(world) == {n0: 8000, n1: 0, n2: 5000}

    def test_only_nodes_that_the_members_accept_are_saved(self, world: GangWorld) -> None:
        nodes(world, 2)
        world.add_node(node("gpu", labels={"kind": "gpu"}))
        full = filler(world, NodeName("gpu"))
        members = [replace(each, node_selector={"kind": "gpu"}) for each in gang_pods("choosy", 1, FULL)]
        world.create(*members)
        world.filter(members[0], [NodeName("gpu")])
        world.pass_time(SECONDS)
        assert saved(world) == {NodeName("gpu"): 0}
        world.delete(full)
        world.schedule()
        assert world.pods[members[0].uid].node == "gpu"

    def test_it_is_looked_at_anew_after_a_while_without_news(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        filler(world, n0)
        waiting(world, "large", 2)
        world.pass_time(SECONDS)
        before = saved(world)
        for _ in range(5):
            world.pass_time(RECHOOSE_SECONDS)
            assert saved(world) == before
            assert all(held.until == world.clock.now() + RECHOOSE_SECONDS for held in savings(world))

    @pytest.mark.parametrize("leaving", [1, 2])
    def test_nothing_is_saved_any_more_when_members_are_deleted(self, world: GangWorld, leaving: int) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0)
        members = waiting(world, "large", 2)
        world.pass_time(SECONDS)
        for member in members[:leaving]:
            world.delete(member.uid)
        assert saved(world) == {}
        assert saved_for(world) is None
        world.create(pod("ordinary", FULL))
        world.schedule()
        assert world.pods[PodUid("uid-ordinary")].node == n1

    def test_nothing_is_saved_any_more_when_the_cluster_has_become_too_small(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        filler(world, n0)
        waiting(world, "large", 3)
        world.pass_time(SECONDS)
        assert saved_for(world) == "large"
        world.remove_node(n2)
        assert (saved_for(world), saved(world)) == (None, {})
        world.add_node(node("n2"))
        assert saved_for(world) == "large"
        assert saved(world) == {n0: 0, n1: 8000, n2: 8000}

    def test_it_is_said_once_for_whom_room_is_saved(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        filler(world, n0)
        members = waiting(world, "large", 2)
        for _ in range(3):
            world.pass_time(SECONDS)
        assert world.told == [RoomSaved(GangKey("default", "large"), 2, tuple(members))]

    def test_is_taken_for_the_smallest_of_those_who_are_more_than_needed(self, world: GangWorld) -> None:
        [n0, _] = nodes(world, 2)
        full = filler(world, n0)
        ask = gang_ask("large", 2)
        members = [pod(f"large-{number}", {"cpu": cpu}, gang=ask) for number, cpu in enumerate((16000, 8000, 8000))]
        world.create(*members)
        for member in members:
            world.filter(member, list(world.nodes))
        world.pass_time(SECONDS)
        assert saved_for(world) == "large"
        world.delete(full)
        world.schedule()
        assert world.bound("large") == 2


class TestRoomThatOthersLeave:
    """Pods are evicted for the gang, and room is saved for it where they are: see `waiting.preempt`."""

    @staticmethod
    def evicted_for(world: GangWorld, name: str, *, priority: int = 1) -> None:
        [member] = [replace(each, priority=priority) for each in gang_pods(name, 1, FULL)]
        world.create(member)
        world.filter(member, list(world.nodes))
        world.evicted.clear()  # they take their time

    def test_is_saved_there_and_not_where_more_is_free_meanwhile(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        filler(world, n0, 6000)
        world.create(pod("low", FULL, node=n1))
        filler(world, n2, 7000)
        small = filler(world, n2, 1000)
        self.evicted_for(world, "urgent")
        assert world.preempted == [["low"]]
        assert saved(world) == {n1: 0}
        assert all(held.until == world.clock.now() + RECHOOSE_SECONDS for held in savings(world))
        assert all(PodUid(held.holder) not in world.pods for held in savings(world))
        world.delete(small)
        assert n0 not in saved(world)

    def test_is_saved_for_that_gang_alone(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        for where in (n0, n1):
            world.create(pod(f"low-{where}", FULL, node=where, preempts=False))
        filler(world, n2, 2000)
        waiting(world, "large", 3)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0, n1: 0, n2: 6000} or saved_for(world) == "large"
        self.evicted_for(world, "urgent")
        assert saved_for(world) == "urgent"
        assert {held.owner for held in savings(world)} == {GangKey("default", "urgent")}

    def test_no_more_is_saved_than_is_still_needed(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        filler(world, n0)
        filler(world, n1)
        members = waiting(world, "large", 3)
        world.pass_time(SECONDS)
        assert saved(world) == {n0: 0, n1: 0, n2: 8000}
        world.create(*(replace(each, gang=gang_ask("large", 2)) for each in members))
        assert len(savings(world)) == 2
        assert saved(world)[n2] == 8000


class TestWhoMayTakeIt:
    def test_a_gang_before_it_is_tried_on_what_is_saved_and_what_comes_free(self, world: GangWorld) -> None:
        [n0, n1, n2] = nodes(world, 3)
        filler(world, n0)
        full = filler(world, n1)
        waiting(world, "large", 3)
        world.pass_time(SECONDS)
        assert saved(world)[n2] == 8000
        waiting(world, "urgent", 2, priority=1)
        world.delete(full)
        world.schedule()
        assert world.bound("urgent") == 2

    def test_a_gang_of_higher_priority_takes_what_is_saved_and_the_rest_goes_on_being_saved(
        self, world: GangWorld
    ) -> None:
        names = nodes(world, 4)
        filler(world, names[0])
        waiting(world, "large", 4)
        world.pass_time(SECONDS)
        assert saved(world) == {names[0]: 0, **dict.fromkeys(names[1:], 8000)}
        urgent = [replace(each, priority=1) for each in gang_pods("urgent", 2, FULL)]
        world.create(*urgent)
        world.schedule()
        assert world.bound("urgent") == 2
        assert saved_for(world) == "large"
        assert sum(saved(world).values()) == 8000

    def test_when_the_turn_of_another_comes_it_is_saved_for_that_one(self, world: GangWorld) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0)
        waiting(world, "large", 2)
        world.pass_time(SECONDS)
        waiting(world, "urgent", 2, priority=1)
        assert saved_for(world) == "large"
        world.pass_time(SECONDS)
        assert saved_for(world) == "urgent"
        assert saved(world) == {n0: 0, n1: 8000}

    @pytest.mark.parametrize(("priority", "goes"), [(0, False), (1, False), (2, True)])
    def test_an_ordinary_pod_takes_what_is_saved_for_a_lower_priority(
        self, world: GangWorld, priority: int, goes: bool
    ) -> None:
        [n0, n1] = nodes(world, 2)
        filler(world, n0)
        waiting(world, "large", 2, priority=1)
        world.pass_time(SECONDS)
        world.create(pod("ordinary", {"cpu": 3000}, priority=priority))
        world.schedule()
        assert (world.pods[PodUid("uid-ordinary")].node == n1) == goes
        assert saved(world) == {n0: 0, n1: 5000 if goes else 8000}


class TestManyWait:
    """A thousand gangs that wait cost those who come and go nothing."""

    @pytest.fixture
    def crowd(self, world: GangWorld) -> GangWorld:
        names = nodes(world, 8)
        for name in names[1:]:
            filler(world, name)
        for number in range(250):
            for size in (2, 3, 4, 5):
                waiting(world, f"g{number}x{size}", size, created=1 + number)
        return world

    def test_plans_are_tried_for_one_gang_of_a_shape_and_only_where_enough_is_free(
        self, crowd: GangWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[str] = []
        reserve = Places.reserve

        def counted(self: Places, gang: Gang, *more: object, **wishes: bool) -> object:
            tried.append(gang.key.name)
            return reserve(self, gang, *more, **wishes)  # type: ignore[arg-type]

        monkeypatch.setattr(Places, "reserve", counted)
        crowd.create(pod("ordinary", {"cpu": 1000}))
        crowd.schedule()
        crowd.delete(PodUid("uid-ordinary"))
        assert tried == []
        crowd.delete(PodUid("uid-filler-n1-8000"))
        assert tried == ["g0x2"]
        crowd.schedule()
        assert crowd.bound("g0x2") == 2


def savings(world: GangWorld) -> list[Holding]:
    return [held for held in world.scheduler.cache.ledger.rows.holdings() if held.kind is HoldingKind.SAVING]
