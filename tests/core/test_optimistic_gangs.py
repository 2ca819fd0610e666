"""Gangs for which nothing is reserved at filter: where members go is decided, and claimed when they come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.state.gang import NO_ROOM, ROOM_TAKEN
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld

FOUR = {"cpu": 4000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(reserve_at_filter=False)
    for name in ("n1", "n2"):
        made.add_node(node(name, {"cpu": 4000}))
    yield made
    made.check()


def free(world: GangWorld) -> dict[str, int]:
    return {name: world.scheduler.cache.ledger.rows.free(name, CPU) for name in world.nodes}


def gang_of_two(world: GangWorld, name: str = "train") -> list[Pod]:
    members = gang_pods(name, 2, FOUR)
    world.create(*members)
    return members


def test_room_is_free_for_others_until_the_member_that_is_to_have_it_comes_to_be_bound(world: GangWorld) -> None:
    first, second = gang_of_two(world)
    world.filter(first)
    assert free(world) == {"n1": 4000, "n2": 4000}
    assert world.bind(first.uid) == ""
    assert world.gangs == {"train": Phase.PLANNED}
    assert free(world) == {"n1": 0, "n2": 4000}, "what kube-scheduler counts as well"
    world.filter(second)
    assert free(world) == {"n1": 0, "n2": 4000}
    assert world.bind(second.uid) == ""
    assert world.opened == {first.uid: "n1", second.uid: "n2"}
    assert free(world) == {"n1": 0, "n2": 0}


def test_a_member_does_not_go_where_another_is_to_go(world: GangWorld) -> None:
    first, second = gang_of_two(world)
    world.filter(first)
    assert world.assumed[first.uid] == "n1"
    assert not world.filter(second, [NodeName("n1")]).passed


def test_a_member_that_comes_as_it_was_expected_is_to_go_where_that_was_expected(world: GangWorld) -> None:
    world.jobs = 16
    first, second = gang_pods("train", 2, FOUR)
    world.add_node(node("n3", {"cpu": 4000}))
    filler = pod("filler", FOUR, node=NodeName("n1"))
    world.create(filler, first)
    world.filter(first, [NodeName("n2"), NodeName("n3")])
    expected = {held.node for held in world.scheduler.cache.ledger.held_for(GangKey("default", "train"))}
    assert expected == {"n2", "n3"}
    world.delete(filler.uid)
    world.create(second)
    assert {held.node for held in world.scheduler.cache.ledger.held_for(GangKey("default", "train"))} == expected


def gang_whose_first_member_is_overtaken(world: GangWorld) -> tuple[Pod, Pod]:
    """It stands at the barrier, a foreign pod fills its node, and the second member comes."""
    first, second = gang_of_two(world)
    for member in (first, second):
        world.filter(member)
    world.bind(first.uid)
    world.create(pod("foreign", FOUR, node="n1"))
    world.bind(second.uid)
    return first, second


def test_a_pod_that_takes_the_room_meanwhile_turns_back_the_member_that_was_to_have_it(world: GangWorld) -> None:
    first, second = gang_whose_first_member_is_overtaken(world)
    assert world.turned_back == [first.uid]
    assert not world.opened
    assert second.uid in world.assumed, "the other stands at the barrier as before"


def test_once_there_is_room_again_all_are_bound(world: GangWorld) -> None:
    first, _ = gang_whose_first_member_is_overtaken(world)
    world.add_node(node("n3", {"cpu": 4000}))
    world.schedule()
    assert world.bound("train") == 2
    assert world.pods[first.uid].node == "n3"


def test_a_bind_for_a_node_that_is_full_by_now_is_refused(world: GangWorld) -> None:
    first, _ = gang_of_two(world)
    world.filter(first)
    world.create(pod("foreign", FOUR, node="n1"))
    assert world.bind(first.uid) == ROOM_TAKEN


def test_of_two_gangs_that_intend_the_same_room_the_one_that_comes_first_has_it(world: GangWorld) -> None:
    early, late = gang_of_two(world, "early"), gang_of_two(world, "late")
    # kube-scheduler with replicas, or with news that are late: it offers what it has given to another.
    for member in (*early, *late):
        assert world.filter(member, [NodeName("n1"), NodeName("n2")]).passed
    assert world.bind(early[0].uid) == ""
    assert world.bind(late[0].uid) == ROOM_TAKEN
    assert world.bind(early[1].uid) == ""
    assert world.opened.keys() == {member.uid for member in early}
    assert world.bind(late[1].uid) == ROOM_TAKEN
    world.schedule()
    assert (world.bound("early"), world.bound("late")) == (2, 0)
    world.pass_time(10)
    assert not world.scheduler.cache.ledger.held_for(GangKey("default", "late"))


def test_a_gang_that_has_waited_holds_what_it_is_woken_for(world: GangWorld) -> None:
    world.create(pod("filler", FOUR, node="n1"))
    members = gang_of_two(world)
    assert set(world.filter(members[0]).unresolvable.values()) == {NO_ROOM}
    world.delete(PodUid("uid-filler"))
    assert world.wakes[members[0].uid] == 1
    assert free(world) == {"n1": 0, "n2": 0}


def test_a_gang_whose_plan_ran_out_holds_its_next_one(world: GangWorld) -> None:
    """Two gangs at their barriers may each lack what the other has."""
    n1, n2 = NodeName("n1"), NodeName("n2")
    one, other = gang_of_two(world, "one"), gang_of_two(world, "other")
    world.filter(one[0], [n1, n2])
    world.filter(other[0], [n2, n1])
    for member in (one[0], other[0]):
        assert world.bind(member.uid) == ""
    assert world.offer(one[1]) == world.offer(other[1]) == []
    world.pass_time(4)
    assert world.turned_back == [one[0].uid, other[0].uid]
    assert free(world) == {"n1": 4000, "n2": 4000}
    world.filter(one[0])
    assert free(world) == {"n1": 0, "n2": 0}
    world.schedule()
    assert (world.bound("one"), world.bound("other")) == (2, 0)


def test_members_beyond_the_quorum_hold_their_room_once_the_others_are_bound(world: GangWorld) -> None:
    world.add_node(node("n3", {"cpu": 4000}))
    world.add_node(node("n4", {"cpu": 4000}))
    members = gang_pods("train", 3, FOUR, quorum=2)
    world.create(*members)
    world.bring(members[:2])
    world.filter(members[2])
    assert sum(free(world).values()) == 4000
    world.schedule()
    assert world.bound("train") == 3


def test_a_member_is_replaced_before_the_others_have_come(world: GangWorld) -> None:
    first, second = gang_of_two(world)
    world.filter(first)
    world.bind(first.uid)
    world.filter(second)
    world.delete(second.uid)
    world.create(gang_pods("train", 3, FOUR, quorum=2)[2])
    world.schedule()
    assert world.bound("train") == 2
