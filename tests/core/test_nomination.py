"""Nominations: kube-scheduler keeps room for members while others leave for them, and a plan goes by that."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from extender.core.gangs.placement.placement import as_nominated
from extender.core.gangs.state.bin_packing import Slot
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holder
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, node, pod, units
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
NODES = [NodeName(f"n{number}") for number in range(4)]


@given(st.data())
def test_a_plan_keeps_its_nodes_and_no_slot_of_one_kind_gets_anothers(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=6))
    slots = [Slot(Holder(f"s{index}"), units(cpu=kind)) for index, kind in enumerate(kinds)]
    places = {slot.holder: data.draw(st.sampled_from(NODES)) for slot in slots}
    nominated = {PodUid(slot.holder): data.draw(st.sampled_from(NODES)) for slot in slots if data.draw(st.booleans())}
    found = as_nominated(slots, places, nominated)
    for kind in (1, 2):
        alike = [slot.holder for slot in slots if slot.units == units(cpu=kind)]
        assert sorted(found[each] for each in alike) == sorted(places[each] for each in alike)
        possible = [places[each] for each in alike]
        for holder in alike:
            wanted = nominated.get(PodUid(holder))
            if wanted in possible and found[holder] != wanted:
                # Only because as many others as have a place there are nominated there too.
                there = [each for each in alike if found[each] == wanted]
                assert all(nominated.get(PodUid(each)) == wanted for each in there)


def preempting(members: int = 2) -> GangWorld:
    world = GangWorld()
    for name in NODES[:members]:
        world.add_node(node(name))
        world.create(pod(f"low-{name}", FULL, node=name))
    made = [replace(each, priority=1) for each in gang_pods("top", members, FULL)]
    world.create(*made)
    for each in made:
        world.filter(each, list(world.nodes))
    return world


def test_members_are_nominated_where_the_victims_leave_and_planned_there() -> None:
    world = preempting()
    gang = world.scheduler.cache.gangs.by_key[GangKey("default", "top")]
    nominated = dict(gang.plan.nominated)
    assert sorted(nominated.values()) == NODES[:2]
    world.schedule()
    assert world.gangs == {"top": Phase.BOUND}
    assert {uid: world.pods[uid].node for uid in nominated} == nominated
    assert gang.plan.nominated == {}
    assert world.let_go == [], "they are bound"


def test_they_are_nominated_no_more_when_the_plan_is_given_up() -> None:
    world = preempting()
    for uid in world.evicted:
        world.delete(uid)
    world.evicted.clear()
    assert world.gangs == {"top": Phase.PLANNED}
    world.pass_time(60)
    assert sorted(world.let_go) == ["top-0", "top-1"]


def test_they_are_nominated_no_more_when_others_have_taken_the_room() -> None:
    """Another scheduler placed them, and no preemption moves them: lower pods are to have the rest."""
    world = preempting()
    for number, uid in enumerate(list(world.evicted)):
        node = world.pods[uid].node
        world.delete(uid)
        world.create(
            replace(pod(f"taker-{number}", {"cpu": 8000}, scheduler="another", priority=2_000_000_000), node=node)
        )
    world.evicted.clear()
    world.pass_time(60)
    assert sorted(world.let_go) == ["top-0", "top-1"]
    assert world.scheduler.cache.gangs.by_key[GangKey("default", "top")].plan.nominated == {}


def test_room_is_kept_again_for_one_whose_nomination_was_dropped_and_for_nobody_else() -> None:
    world = preempting(1)
    member = world.pods[PodUid("uid-top-0")]
    world.create(replace(member, labels={"edited": "before it is nominated"}))
    assert world.kept_room == []
    nominated = replace(member, nominated=NODES[0])
    world.create(nominated, replace(nominated, labels={"edited": "since"}))
    assert world.kept_room == []
    world.create(member)
    assert world.kept_room == [("top-0", NODES[0])]
    world.create(nominated, replace(member, deleting=True))
    assert len(world.kept_room) == 1


def test_asked_about_the_nominated_node_alone_the_plan_stands_though_that_node_is_anothers() -> None:
    world = GangWorld()
    for name in NODES[:2]:
        world.add_node(node(name))
    one, two = gang_pods("top", 2, FULL)
    world.create(one, two)
    [first] = world.filter(one, list(world.nodes)).passed
    told = replace(two, nominated=first)
    assert not world.do(world.scheduler.filter(told, [first])).passed
    assert world.gangs == {"top": Phase.PLANNED}
    assert world.do(world.scheduler.filter(told, [name for name in world.nodes if name != first])).passed
