"""Kinds of gangs whose edges need a scheduler that does as it is told: what differs by member, excess, one, 500.

The same kinds on the real control plane: tests/e2e/test_kinds_of_gangs.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.state.gang import INCOMPLETE, NO_ROOM, NO_ROOM_FOR_MEMBER
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holding
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, gang_pods, labels_term, names_term, node, pod
from tests.core.gang_world import GangWorld

EIGHT = {"cpu": 8000}
TRAIN = GangKey("default", "train")


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    yield made
    made.check()


def nodes(world: GangWorld, count: int, cpu: int = 8000) -> list[NodeName]:
    for number in range(count):
        world.add_node(node(f"n{number}", {"cpu": cpu}))
    return list(world.nodes)


def none_is_bound(world: GangWorld) -> bool:
    """And nothing is held."""
    return world.bound("train") == 0 and not world.scheduler.cache.ledger.held_for(TRAIN)


def vacant(world: GangWorld) -> list[Holding]:
    """Places of members that were not there when they were reserved."""
    return [held for held in world.scheduler.cache.ledger.held_for(TRAIN) if PodUid(held.holder) not in world.assumed]


def asking(members: Sequence[Pod], quorum: int) -> list[Pod]:
    """The members as they are now, once their annotation says so."""
    return [replace(member, gang=gang_ask("train", quorum)) for member in members]


class TestMembersThatAskForDifferentThings:
    def test_executors_larger_than_what_their_driver_stood_for_widen_the_plan(self, world: GangWorld) -> None:
        world.jobs = 16
        nodes(world, 3)
        ask = gang_ask(quorum=4)
        world.create(pod("driver", {"cpu": 1000}, gang=ask))
        world.schedule()
        assert len(world.scheduler.cache.ledger.held_for(TRAIN)) == 4
        world.create(*(pod(f"executor-{number}", {"cpu": 7000}, gang=ask) for number in range(3)))
        world.schedule()
        assert world.bound("train") == 4

    def test_a_member_that_comes_as_it_was_expected_leaves_its_place_where_it_is(self, world: GangWorld) -> None:
        world.jobs = 16
        nodes(world, 3)
        first, second = gang_pods("train", 2, EIGHT)
        filler = pod("filler", EIGHT, node=NodeName("n0"))
        world.create(filler, first)
        world.filter(first, [NodeName("n1"), NodeName("n2")])
        assert [held.node for held in vacant(world)] == ["n2"]
        world.delete(filler.uid)
        world.create(second)
        assert [held.node for held in vacant(world)] == ["n2"]

    def test_a_member_that_asks_for_a_device_besides_has_its_place_where_there_is_one(self, world: GangWorld) -> None:
        gpu = "nvidia.com/gpu"
        nodes(world, 2)
        world.add_node(node("gpus", {"cpu": 1000, gpu: 1}))
        ask = gang_ask(quorum=2)
        driver = pod("driver", {"cpu": 1000}, gang=ask)
        world.create(driver)
        world.filter(driver, [NodeName("n0")])
        world.create(pod("trainer", {"cpu": 1000, gpu: 1}, gang=ask))
        assert {held.node for held in world.scheduler.cache.ledger.held_for(TRAIN)} == {"n0", "gpus"}

    def test_executors_too_large_end_what_was_planned_for_smaller_ones(self, world: GangWorld) -> None:
        """kube-scheduler finds no node for the last of them, and does not ask: that it is there is enough."""
        world.jobs = 16
        nodes(world, 2)
        ask = gang_ask(quorum=4)
        world.create(pod("driver", {"cpu": 1000}, gang=ask))
        world.schedule()
        world.create(*(pod(f"executor-{number}", {"cpu": 7000}, gang=ask) for number in range(3)))
        world.schedule()
        assert none_is_bound(world)
        assert world.gangs == {"train": Phase.WAITING}
        assert world.turned_back_for[0] == "the new members do not fit into the gang's plan"
        world.add_node(node("third"))
        world.schedule()
        assert world.bound("train") == 4

    def test_an_executor_has_the_room_that_was_held_for_a_smaller_one(self, world: GangWorld) -> None:
        nodes(world, 1)
        ask = gang_ask(quorum=2)
        world.create(pod("driver", {"cpu": 2000}, gang=ask))
        world.schedule()
        world.create(pod("executor", {"cpu": 6000}, gang=ask))
        world.schedule()
        assert world.bound("train") == 2
        assert world.turned_back == []

    def test_each_resource_is_counted_for_those_who_ask_for_it(self, world: GangWorld) -> None:
        gpu = "nvidia.com/gpu"
        world.add_node(node("plain"))
        world.add_node(node("gpus", {"cpu": 8000, gpu: 2}))
        ask = gang_ask(quorum=4)
        trainers = [pod(f"trainer-{number}", {"cpu": 1000, gpu: 1}, gang=ask) for number in range(3)]
        world.create(pod("loader", EIGHT, gang=ask), *trainers)
        world.schedule()
        assert none_is_bound(world)
        world.add_node(node("gpus", {"cpu": 8000, gpu: 3}))
        world.schedule()
        assert {member.node for member in world.pods.values() if member.name != "loader"} == {"gpus"}
        assert world.bound("train") == 4


class TestSeveralMembersOnOneNode:
    @pytest.mark.parametrize("short", [{"cpu": 7999}, {"cpu": 8000, "memory": 7}, {"cpu": 8000, "pods": 3}])
    def test_whatever_is_short_for_the_last_of_them_is_short_for_all(
        self, world: GangWorld, short: dict[str, int]
    ) -> None:
        world.add_node(node("n0", {"memory": 8, **short}))
        world.create(*gang_pods("train", 4, {"cpu": 2000, "memory": 2}))
        world.schedule()
        assert none_is_bound(world)
        world.add_node(node("n0", {"cpu": 8000, "memory": 8, "pods": 4}))
        world.schedule()
        assert world.bound("train") == 4


class TestMoreMembersThanTheQuorum:
    def test_a_quorum_of_the_smallest_is_found_though_the_oldest_are_large(self, world: GangWorld) -> None:
        nodes(world, 1, cpu=3000)
        ask = gang_ask(quorum=2)
        large = [pod(f"large-{number}", EIGHT, gang=ask, created=1.0) for number in range(2)]
        small = [pod(f"small-{number}", {"cpu": 2000}, gang=ask, created=2.0) for number in range(3)]
        world.create(*large, *small)
        world.schedule()
        assert none_is_bound(world)
        world.add_node(node("n1", {"cpu": 2000}))
        world.schedule()
        assert sum(world.pods[member.uid].node is not None for member in small) == 2
        assert world.bound("train") == 2
        world.add_node(node("n2"))
        world.schedule()
        assert world.bound("train") == 3
        world.add_node(node("n3"))
        world.add_node(node("n4", {"cpu": 2000}))
        world.schedule()
        assert world.bound("train") == 5

    def test_of_a_kind_no_more_count_than_there_is_room_for(self, world: GangWorld) -> None:
        """Three small ones that only one node would have, which has room for one of them; and two large ones."""
        world.add_node(node("small", {"cpu": 1000}, labels={"disk": "ssd"}))
        nodes(world, 2)
        ask = gang_ask(quorum=3)
        small = [pod(f"small-{n}", gang=ask, created=1.0, node_selector={"disk": "ssd"}) for n in range(3)]
        large = [pod(f"large-{n}", EIGHT, gang=ask, created=2.0) for n in range(2)]
        world.create(*small, *large)
        world.schedule()
        assert all(world.pods[member.uid].node is not None for member in large)
        assert world.bound("train") == 3

    def test_of_those_left_over_each_is_woken_for_the_room_that_it_needs(self, world: GangWorld) -> None:
        nodes(world, 1)
        ask = gang_ask(quorum=1)
        first, large, small = (
            pod(name, {"cpu": cpu}, gang=ask) for name, cpu in (("first", 8000), ("large", 8000), ("small", 1000))
        )
        world.create(first)
        world.schedule()
        world.create(large, small)
        for member in (large, small):
            world.filter(member, list(world.nodes))
        world.add_node(node("n1", {"cpu": 1000}))
        assert world.wakes == {small.uid: 1}

    def test_who_finds_no_room_beside_the_quorum_holds_none(self, world: GangWorld) -> None:
        nodes(world, 2)
        *quorum, third = gang_pods("train", 3, EIGHT, quorum=2)
        world.create(*quorum)
        world.schedule()
        world.create(third)
        rejected = world.filter(third, list(world.nodes))
        assert set(rejected.unresolvable.values()) == {NO_ROOM_FOR_MEMBER}
        assert world.scheduler.cache.ledger.holding(third.uid) is None

    @pytest.mark.parametrize(
        "picky",
        [
            pod("picky", EIGHT, gang=gang_ask(), created=1.0, node_selector={"disk": "ssd"}),
            pod("picky", {"cpu": 1000, "nvidia.com/gpu": 1}, gang=gang_ask(), created=1.0),
        ],
        ids=["no such node", "no such resource"],
    )
    def test_one_that_could_go_nowhere_stands_in_nobodys_way(self, world: GangWorld, picky: Pod) -> None:
        """It is the oldest; the second is the smallest as well."""
        nodes(world, 2)
        world.create(picky, *(replace(each, created=2.0) for each in gang_pods("train", 2, EIGHT)))
        world.schedule()
        assert world.bound("train") == 2


class TestAQuorumThatChanges:
    def test_raised_at_the_barrier_needs_a_place_for_the_new_one_too(self, world: GangWorld) -> None:
        nodes(world, 3)
        members = gang_pods("train", 3, EIGHT)
        world.create(*members)
        for member in members[:2]:
            world.filter(member)
            world.bind(member.uid)
        world.create(*asking(members, 4))
        world.filter(members[2])
        world.bind(members[2].uid)
        assert not world.opened
        world.pass_time(20)
        world.schedule()
        assert sorted(world.turned_back) == sorted(member.uid for member in members)
        assert none_is_bound(world)
        world.create(*asking(gang_pods("train", 4, EIGHT)[3:], 4))
        world.schedule()
        assert none_is_bound(world)
        assert world.gangs == {"train": Phase.WAITING}
        world.add_node(node("fourth"))
        world.schedule()
        assert world.bound("train") == 4

    def test_lowered_to_those_at_the_barrier_opens_it_and_frees_the_rest(self, world: GangWorld) -> None:
        world.jobs = 16
        nodes(world, 4)
        members = gang_pods("train", 3, EIGHT, quorum=4)
        world.create(*members)
        for member in members:
            world.filter(member)
            world.bind(member.uid)
        world.create(*asking(members[:2], 3))
        assert not world.opened
        world.create(*asking(members[2:], 3))
        assert len(world.opened) == 3
        world.schedule()
        assert len(world.scheduler.cache.ledger.held_for(TRAIN)) == 3

    def test_raised_while_it_waits_for_room_lets_room_for_the_old_quorum_go_by(self, world: GangWorld) -> None:
        nodes(world, 1)
        members = gang_pods("train", 4, EIGHT, quorum=2)
        world.create(*members)
        world.schedule()
        world.create(*asking(members[:1], 4))
        world.add_node(node("second"))
        world.schedule()
        assert none_is_bound(world)
        stranger = pod("stranger", EIGHT)
        world.create(stranger)
        assert world.filter(stranger).passed
        for name in ("third", "fourth", "fifth"):
            world.add_node(node(name))
        world.schedule()
        assert world.bound("train") == 4

    def test_lowered_while_members_are_missing_plans_those_who_are_there(self, world: GangWorld) -> None:
        nodes(world, 1)
        members = gang_pods("train", 2, quorum=3)
        world.create(*members)
        world.schedule()
        world.pass_time(20)
        assert set(world.filter(members[0]).unresolvable.values()) == {INCOMPLETE}
        world.create(*asking(members, 2))
        world.schedule()
        assert world.bound("train") == 2


class TestNodesThatDifferByMember:
    def test_members_that_are_each_pinned_to_a_node_are_bound_there(self, world: GangWorld) -> None:
        """As those of a StatefulSet whose volumes are local."""
        names = nodes(world, 6)
        ask = gang_ask(quorum=6)
        members = [
            pod(f"m{number}", EIGHT, gang=ask, affinity=(names_term("In", name),))
            for number, name in enumerate(reversed(names))
        ]
        world.create(*members)
        taken = pod("taken", {"cpu": 1}, node=names[3])
        world.create(taken)
        world.schedule()
        assert none_is_bound(world)
        world.add_node(node("elsewhere"))
        world.schedule()
        assert none_is_bound(world)
        assert world.wakes == {}
        world.delete(taken.uid)
        world.schedule()
        assert [world.pods[member.uid].node for member in members] == names[::-1]

    @pytest.mark.parametrize("first", range(4))
    def test_whoever_is_asked_about_first_leaves_their_node_to_the_choosy(self, world: GangWorld, first: int) -> None:
        for name, labels in {
            "fast": {"disk": "ssd", "zone": "east"},
            "east": {"zone": "east"},
            "west": {"zone": "west"},
            "plain": {},
        }.items():
            world.add_node(node(name, labels=labels))
        ask = gang_ask(quorum=4)
        members = [
            pod("anywhere", EIGHT, gang=ask),
            pod("fast", EIGHT, gang=ask, node_selector={"disk": "ssd"}),
            pod("east", EIGHT, gang=ask, affinity=(labels_term(("zone", "In", ["east", "north"])),)),
            pod("zoned", EIGHT, gang=ask, affinity=(labels_term(("zone", "Exists", [])),)),
        ]
        world.create(*members)
        assert world.filter(members[first]).passed
        world.schedule()
        placed = {member.name: member.node for member in world.pods.values()}
        assert placed == {"anywhere": "plain", "fast": "fast", "east": "east", "zoned": "west"}

    def test_whole_node_members_with_a_choice_of_their_own_are_planned_where_all_fit(self, world: GangWorld) -> None:
        """Least choice first, decided once at the beginning, misses it."""
        names = nodes(world, 4)
        for number, allowed in enumerate([(0, 3), (1,), (0, 1, 2), (0, 1)]):
            affinity = tuple(names_term("In", names[index]) for index in allowed)
            world.create(pod(f"m{number}", EIGHT, gang=gang_ask(quorum=4), created=number + 1, affinity=affinity))
        world.schedule()
        assert world.bound("train") == 4

    def test_a_label_that_lets_the_last_member_in_wakes_all(self, world: GangWorld) -> None:
        nodes(world, 3)
        ask = gang_ask(quorum=3)
        members = [pod(f"m{number}", EIGHT, gang=ask) for number in range(2)]
        members.append(pod("picky", EIGHT, gang=ask, affinity=(labels_term(("disk", "In", ["ssd"])),)))
        world.create(*members)
        world.schedule()
        assert none_is_bound(world)
        world.add_node(node("n0", labels={"disk": "ssd"}))
        world.schedule()
        assert world.bound("train") == 3
        assert world.pods[members[2].uid].node == "n0"


class TestAGangOfOne:
    def test_is_bound_like_an_ordinary_pod_but_waits_as_a_gang(self, world: GangWorld) -> None:
        nodes(world, 1, cpu=4000)
        [alone] = gang_pods("train", 1, EIGHT)
        world.create(alone)
        assert set(world.filter(alone, list(world.nodes)).unresolvable.values()) == {NO_ROOM}
        assert none_is_bound(world)
        world.add_node(node("n1"))
        assert world.wakes == {alone.uid: 1}
        world.schedule()
        assert world.gangs == {"train": Phase.BOUND}
        assert world.gangs_opened == [("train", 1)]


class TestAGangOf500:
    def test_is_bound_on_a_few_nodes_when_there_is_room_for_the_last(self, world: GangWorld) -> None:
        nodes(world, 4, cpu=100_000)
        world.add_node(node("last", {"cpu": 99_000}))
        members = gang_pods("train", 500)
        world.create(*members)
        world.schedule()
        assert none_is_bound(world)
        assert world.wakes == {}
        world.add_node(node("last", {"cpu": 100_000}))
        world.schedule()
        assert world.gangs_opened == [("train", 500)]
        assert world.bound("train") == 500
