"""Gangs of which a part is bound: what the others hold meanwhile, where they may go, and when that ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gangs.machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld

EIGHT = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    yield made
    made.check()


def bound_in_part(
    world: GangWorld, members: Sequence[Pod], nodes: Sequence[str], *, placed: str, apart: float = 0
) -> None:
    """Each of the members was to go to the node beside it, and is bound there if it is the one that is named; of the
    others the Bindings are refused, so many seconds after one another."""
    world.create(*members)
    world.bring(members)
    assert [world.opened[each.uid] for each in members] == nodes
    for member in members:
        if member.name == placed:
            world.write(member.uid)
        else:
            world.pass_time(apart)
            refuse(world, member)
    world.catch_up()


def refuse(world: GangWorld, member: Pod) -> None:
    """The API server has refused the member's Binding, which may be tried again."""
    del world.opened[member.uid], world.assumed[member.uid]
    world.do(world.keeper.heed(NotBound(member.uid, for_good=False, surely=True)))


def taken(world: GangWorld, name: str, cpu: int) -> None:
    """Another scheduler has bound a pod to the node."""
    world.create(pod(f"stranger-{name}", {"cpu": cpu}, node=NodeName(name), scheduler="other"))


def held(world: GangWorld) -> dict[str, str]:
    """Where what is held for the gang's members that are not bound is."""
    unbound = {pod.uid for pod in world.pods.values() if pod.node is None}
    found = world.keeper.tables.ledger.held_for(GangKey("default", "train"))
    return {each.holder: each.node for each in found if PodUid(each.holder) in unbound}


def test_a_member_whose_room_others_took_goes_to_the_place_that_another_has_left(world: GangWorld) -> None:
    """Else it would be woken for that place, turned away, and woken again."""
    for name, cpu in (("n0", 3000), ("n1", 2000)):
        world.add_node(node(name, {"cpu": cpu}))
    members = gang_pods("train", 4)
    bound_in_part(world, members, ["n0", "n1", "n0", "n1"], placed="train-1")
    world.delete(members[3].uid)
    taken(world, "n0", 2000)
    world.wakes.clear()
    assert world.filter(members[0]).passed == ["n1"]
    assert world.filter(members[2]).passed == ["n0"]
    assert held(world) == {members[0].uid: "n1", members[2].uid: "n0"}
    assert world.wakes == {}


def test_what_it_held_before_is_another_members_place_if_there_is_still_room(world: GangWorld) -> None:
    for name in ("n0", "n1", "n2"):
        world.add_node(node(name))
    members = gang_pods("train", 3, EIGHT)
    bound_in_part(world, members, ["n0", "n1", "n2"], placed="train-0")
    world.delete(members[2].uid)
    # kube-scheduler has its own reasons for not offering n1.
    assert world.filter(members[1], [NodeName("n2")]).passed == ["n2"]
    world.create(pod("train-again", EIGHT, gang=members[0].gang))
    stranger = pod("stranger", EIGHT)
    world.create(stranger)
    assert not world.filter(stranger, [NodeName("n1")]).passed
    world.schedule()
    assert world.bound("train") == 3


def test_places_that_do_not_suffice_for_those_who_lack_are_held_for_no_longer_than_their_time(
    world: GangWorld,
) -> None:
    """They come again and again, and each holds its place until its own time is over; there is never room for all."""
    for number in range(4):
        world.add_node(node(f"n{number}"))
    members = gang_pods("train", 4, EIGHT)
    bound_in_part(world, members, ["n0", "n1", "n2", "n3"], placed="train-0", apart=1)
    for name in ("n2", "n3"):
        taken(world, name, 8000)
    world.finish(members[0].uid)
    world.catch_up()
    for _ in range(12):
        world.pass_time(1)
        world.schedule()
        # kube-scheduler tries each again after its back-off.
        world.asleep.clear()
    assert held(world) == {}
    assert world.gangs == {"train": Phase.WAITING}
    world.add_node(node("n4"))
    world.schedule()
    assert world.bound("train") == 3
