"""Calls that are ahead of our watch: what kube-scheduler says of a member is newer than what the table of pods has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from extender.app.contracts.effects import Effect
from extender.app.cycle.scheduler import Scheduler
from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.feedback import Bound, SwitchesChanged
from extender.core.gang_ask import GangAsk, GroupAsk
from extender.core.gangs.state.gang import GangBound, OpenBarrier
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.core.policy import Allow
from extender.core.safety_switches import Switches
from extender.filters.gang import AT_BARRIER
from extender.kube.names import NodeName
from tests.builders import gang_pods, node
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

NODES = [NodeName(f"n{number}") for number in range(3)]
TRAIN = GangKey("default", "train")


class Room(Performing):
    def __init__(self, cpu: int = 8000) -> None:
        self.scheduler = Scheduler(FixedClock())
        self.effects: list[Effect] = []
        for name in NODES:
            self.do(self.scheduler.observe(node(name, {"cpu": cpu})))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def call(self, *members: Pod) -> None:
        for member in members:
            self.do(self.scheduler.filter(member, NODES))

    def place(self, member: Pod) -> NodeName:
        [place] = self.do(self.scheduler.filter(member, NODES)).passed
        return place

    def phase(self) -> Phase:
        return self.scheduler.cache.gangs.by_key[TRAIN].phase


def without_ask(member: Pod) -> Pod:
    return replace(member, gang=None)


def with_a_larger_quorum(member: Pod) -> Pod:
    assert isinstance(member.gang, GangAsk)
    return replace(member, gang=replace(member.gang, quorum=5))


def test_whoever_became_a_member_by_a_call_waits_at_the_barrier_like_others() -> None:
    room, members = Room(), gang_pods("train", 3, {"cpu": 6000})
    for member in members:
        room.do(room.scheduler.observe(without_ask(member)))
    room.call(*members)
    places = {member.uid: room.place(member) for member in members}
    first, *others = members
    assert room.do(room.scheduler.permit(first.uid, places[first.uid])) is AT_BARRIER
    for member in others:
        assert room.do(room.scheduler.permit(member.uid, places[member.uid])) is AT_BARRIER
    assert [len(effect.members) for effect in room.effects if isinstance(effect, OpenBarrier)] == [3]


def test_so_does_one_whose_group_came_between_two_calls() -> None:
    room = Room()
    members = [replace(each, gang=GroupAsk("default", "train", 30.0)) for each in gang_pods("train", 3, {"cpu": 6000})]
    room.do(replaced(room.scheduler, PodGroup, []))
    room.call(*members)
    room.do(room.scheduler.observe(PodGroup("default", "train", 3)))
    room.call(*members)
    place = room.place(members[0])
    assert room.do(room.scheduler.permit(members[0].uid, place)) is AT_BARRIER


@pytest.mark.parametrize("as_known", [without_ask, with_a_larger_quorum])
def test_a_binding_that_is_written_makes_nothing_older_of_what_is_known(as_known: Callable[[Pod], Pod]) -> None:
    room, members = Room(), gang_pods("train", 3, {"cpu": 6000})
    for member in members:
        room.do(room.scheduler.observe(as_known(member)))
    room.call(*members)
    places = {member.uid: room.place(member) for member in members}
    for member in members:
        room.do(room.scheduler.permit(member.uid, places[member.uid]))
    for member in members:
        room.do(room.scheduler.on_event(Bound(member.uid, places[member.uid], Attempt("1", 3, 3))))
        assert room.phase() in (Phase.BINDING, Phase.BOUND)
    assert [type(effect) for effect in room.effects].count(GangBound) == 1


def test_a_place_that_was_reserved_for_one_beyond_the_quorum_is_bound_to_while_nobody_is_refused() -> None:
    room, members = Room(cpu=1000), gang_pods("train", 3, {"cpu": 1000}, quorum=2)
    for member in members:
        room.do(room.scheduler.observe(member))
    room.call(members[0], members[2])
    places = {member.uid: room.place(member) for member in (members[0], members[2])}
    for uid, place in places.items():
        room.do(room.scheduler.permit(uid, place))
    for uid, place in places.items():
        room.do(room.scheduler.on_event(Bound(uid, place)))
    held = room.scheduler.cache.ledger.holding(members[1].uid)
    room.scheduler.cache.safety_switches.set_everywhere(Switches(observe_only=True))
    room.do(room.scheduler.on_event(SwitchesChanged()))
    [free] = set(NODES) - set(places.values())
    assert held is None or held.node == free
    assert room.do(room.scheduler.permit(members[1].uid, free)) == Allow()
    held = room.scheduler.cache.ledger.holding(members[1].uid)
    assert held is not None
    assert (held.node, held.until) == (free, None)
