"""Offers of kube-scheduler that lag behind what we know: its watch and ours tell of a change at different times."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gangs.gangs import Gangs
from extender.core.gangs.state.gang import NO_ROOM
from extender.core.ledger.ledger import Holder
from extender.core.policy import Refuse
from extender.kube.names import NodeName
from tests.builders import NOW, claim, gang_pods, ledger_of, node

_NO_ROOM = Refuse(NO_ROOM, preemption_helps=False)
FULL = {"cpu": 8000}
NODES = [NodeName(f"n{index}") for index in range(4)]


def seen(gangs: Gangs) -> list[Pod]:
    """The gang's four members, as the watch has told of them."""
    members = gang_pods("train", 4, FULL)
    for member in members:
        gangs.members.observe(member, NOW)
    return members


def a_gang_of_four_that_waits_for_the_fourth_node() -> Gangs:
    ledger = ledger_of({name: {"cpu": 8000, "pods": 110} for name in NODES})
    ledger.commit([claim("blocker", NODES[3], FULL)])
    gangs = Gangs(ledger, {name: node(name) for name in NODES})
    for member in seen(gangs):
        assert gangs.admission.admit(member, NODES[:3], NOW) == _NO_ROOM
    return gangs


def test_a_gang_turned_away_on_an_offer_that_lagged_is_placed_on_the_next_that_does_not() -> None:
    gangs, members = a_gang_of_four_that_waits_for_the_fourth_node(), gang_pods("train", 4, FULL)
    gangs.ledger.release(Holder("blocker"))
    gangs.requeue.settle(gangs.ledger.changes.drain_gains(), NOW)
    # Woken, they come while kube-scheduler has not seen yet that the fourth is free: each would fit on three nodes.
    for member in members[::-1]:
        gangs.admission.admit(member, NODES[:3], NOW)
        gangs.requeue.settle(gangs.ledger.changes.drain_gains(), NOW)
    assert {gangs.admission.admit(member, NODES, NOW) for member in members} == set(NODES)


def test_a_gang_that_waits_is_tried_when_more_is_offered_than_before() -> None:
    ledger = ledger_of({name: {"cpu": 8000, "pods": 110} for name in NODES})
    gangs = Gangs(ledger, {name: node(name) for name in NODES})
    members = seen(gangs)
    # Our watch was first here: nothing will change in the ledger any more.
    assert {gangs.admission.admit(member, NODES[:3], NOW) for member in members} == {_NO_ROOM}
    assert {gangs.admission.admit(member, NODES, NOW) for member in members} == set(NODES)


def test_the_same_offer_again_is_not_planned_on_again() -> None:
    gangs, [first, *_] = a_gang_of_four_that_waits_for_the_fourth_node(), gang_pods("train", 4, FULL)
    made = next(iter(gangs.by_key.values())).plan.slots_made
    before = next(iter(gangs.by_key.values())).wait.shortfall
    assert gangs.admission.admit(first, NODES[2::-1], NOW) == _NO_ROOM
    gang = next(iter(gangs.by_key.values()))
    assert gang.wait.shortfall is before
    assert gang.plan.slots_made == made
