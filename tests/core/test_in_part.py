"""Gangs of which a part is bound: what the others hold meanwhile, where they may go, and when that ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.core.town import ZONE, near

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
    world.do(world.scheduler.on_event(NotBound(member.uid, for_good=False, surely=True)))


def taken(world: GangWorld, name: str, cpu: int) -> None:
    """Another scheduler has bound a pod to the node."""
    world.create(pod(f"stranger-{name}", {"cpu": cpu}, node=NodeName(name), scheduler="other"))


def held(world: GangWorld) -> dict[str, str]:
    """Where what is held for the gang's members that are not bound is."""
    unbound = {pod.uid for pod in world.pods.values() if pod.node is None}
    found = world.scheduler.cache.ledger.held_for(GangKey("default", "train"))
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


def test_who_was_turned_away_from_its_place_comes_back_to_it_when_those_who_took_it_have_left(world: GangWorld) -> None:
    """What it holds there itself does not keep it from being woken."""
    for name in ("n0", "n1"):
        world.add_node(node(name))
    members = gang_pods("train", 2, EIGHT)
    bound_in_part(world, members, ["n0", "n1"], placed="train-0")
    taken(world, "n1", 8000)
    # kube-scheduler has not heard of that one yet.
    assert not world.filter(members[1], [NodeName("n1")]).passed
    world.delete(PodUid("uid-stranger-n1"))
    world.schedule()
    assert world.bound("train") == 2


def test_of_places_on_a_node_that_are_too_many_now_the_others_have_what_is_left(world: GangWorld) -> None:
    """Else each would be turned away for what the others hold there, though two are enough."""
    world.add_node(node("n0", {"cpu": 8000}))
    world.add_node(node("n1", {"cpu": 24000}))
    members = gang_pods("train", 4, EIGHT, quorum=3)
    bound_in_part(world, members, ["n0", "n1", "n1", "n1"], placed="train-0")
    taken(world, "n1", 8000)
    world.schedule()
    assert world.bound("train") == 3


def test_who_is_to_be_near_the_others_does_not_leave_them_its_place_and_go_elsewhere(world: GangWorld) -> None:
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "a"), ("n3", "b")):
        world.add_node(node(name, labels={ZONE: zone}))
    driver, *workers = gang_pods("train", 3, EIGHT)
    workers = [replace(each, labels={"app": "worker"}, constraints=near(app="worker")) for each in workers]
    bound_in_part(world, [driver, *workers], ["n0", "n1", "n2"], placed="train-0")
    world.delete(workers[1].uid)
    assert not world.filter(workers[0], [NodeName("n3")]).passed
    assert held(world)[workers[0].uid] == "n1"
    assert world.filter(workers[0], [NodeName("n2")]).passed == ["n2"]
    world.bind(workers[0].uid)
    world.create(replace(workers[1], name="train-again", uid=PodUid("uid-again")))
    world.schedule()
    assert world.bound("train") == 3


def test_who_is_tried_again_while_its_binding_is_written_keeps_its_place(world: GangWorld) -> None:
    """kube-scheduler has given its call up, and others have taken some of that room: what is on its way may arrive."""
    for name in ("n0", "n1"):
        world.add_node(node(name, {"cpu": 2000}))
    members = gang_pods("train", 3)
    world.create(*members)
    world.bring(members)
    here = [each for each in members if world.opened[each.uid] == "n0"]
    there = [each for each in members if each not in here]
    assert len(here) == 2
    world.write(there[0].uid)
    taken(world, "n0", 1000)
    assert not world.filter(here[0], [NodeName("n1")]).passed
    assert held(world) == {each.uid: "n0" for each in here}
