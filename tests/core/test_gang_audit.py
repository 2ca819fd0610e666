"""The audit of gangs sees what it is for: each test breaks one invariant by hand."""

from __future__ import annotations

import pytest

from extender.app.cache.claims import to_holding
from extender.app.contracts.api import Claim
from extender.core.feedback import NotBound
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import gang_pods, node, units
from tests.core.gang_world import GangWorld


@pytest.fixture
def world() -> GangWorld:
    """A gang of three on three nodes: one member has a place, one stands at the barrier."""
    made = GangWorld()
    for number in range(3):
        made.add_node(node(f"n{number}"))
    members = gang_pods("train", 3)
    made.create(*members)
    for member in members[:2]:
        made.filter(member)
    made.bind(members[0].uid)
    assert made.scheduler.cache.violations() == []
    return made


def gang(world: GangWorld) -> Gang:
    return world.scheduler.cache.gangs.by_key[GangKey("default", "train")]


def found(world: GangWorld) -> set[str]:
    return {violation.invariant for violation in world.scheduler.cache.violations()}


def test_a_gang_that_waits_and_holds(world: GangWorld) -> None:
    gang(world).phase = Phase.WAITING
    assert found(world) == {"gang_waits_with_nothing", "gang_not_watched"}


def test_a_place_with_another_deadline_than_its_gang(world: GangWorld) -> None:
    gang(world).plan.deadline = 5.0
    assert found(world) == {"gang_deadline"}


def test_a_member_at_the_barrier_without_its_place(world: GangWorld) -> None:
    [uid] = gang(world).barrier.arrived
    gang(world).barrier.arrived[uid] = NodeName("elsewhere")
    assert found(world) == {"gang_barrier"}


def test_places_of_a_gang_that_is_no_more(world: GangWorld) -> None:
    del world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert found(world) == {"gang_owner"}


def test_claims_have_an_owner_that_is_no_gang(world: GangWorld) -> None:
    claim = Claim(namespace="default", holder="batch", node=NodeName("n2"), units=units(cpu=1000), ttl_seconds=60)
    assert world.scheduler.cache.ledger.commit([to_holding(claim, world.clock.now())]).committed
    assert found(world) == set()


def test_a_gang_without_members(world: GangWorld) -> None:
    for uid in list(gang(world).roster.members):
        gang(world).roster.drop(uid)
    assert "gang_members" in found(world)


def test_a_gang_bound_in_part_without_an_end(world: GangWorld) -> None:
    members = list(gang(world).roster.members)
    world.filter(world.pods[members[2]])
    for uid in members[1:]:
        world.bind(uid)
    for uid in members[:2]:
        world.write(uid)
    del world.opened[members[2]]
    world.do(world.scheduler.on_event(NotBound(members[2], for_good=False)))
    world.catch_up()
    assert found(world) == set()
    world.scheduler.cache.gangs.quorums.in_part.clear()
    assert found(world) == {"gang_in_part"}


def test_a_gang_that_waits_and_that_nothing_will_try_again(world: GangWorld) -> None:
    world.create(*gang_pods("lost", 3, {"cpu": 9000}))
    del world.scheduler.cache.gangs.waiting.unasked[GangKey("default", "lost")]
    assert found(world) == {"gang_not_watched"}
