"""The audit of the ledger, and of those who wait, sees what it is for: each test breaks one thing by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.core.gangs.queue.queue import Queue
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Ledger
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import claim, gang_pods, ledger_of, node, pod, slot
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
TRAIN = GangKey("default", "train")


@pytest.fixture
def ledger() -> Ledger:
    made = ledger_of({"n1": {"cpu": 8000, "escher.dev/team.r": 4}, "n2": {"cpu": 8000}})
    made.commit([claim("a", "n1", {"cpu": 1000}), slot("b", "n2", {"cpu": 1000})])
    assert ledger_audit.violations(made) == []
    return made


@pytest.mark.parametrize(
    ("index", "breaks"),
    [
        ("holders", lambda ledger: ledger._where.clear()),
        ("unbound holdings", lambda ledger: ledger.totals.unbound_on.clear()),
        ("deadlines", lambda ledger: ledger._expiry.until.pop("a")),
        ("next_deadline", lambda ledger: ledger._expiry._heap.clear()),
        ("owners", lambda ledger: ledger._owned.clear()),
        ("owners", lambda ledger: next(iter(ledger._owned.values())).update(b=slot("b", "n2", {"cpu": 1}))),
        ("providers", lambda ledger: ledger.totals.providers.clear()),
    ],
)
def test_an_index_that_differs_from_the_rows_is_named(
    ledger: Ledger, index: str, breaks: Callable[[Ledger], object]
) -> None:
    breaks(ledger)
    found = {(each.invariant, each.detail) for each in ledger_audit.violations(ledger)}
    assert ("ledger_index", f"the index of {index} differs from the rows") in found


@pytest.fixture
def world() -> GangWorld:
    """A gang that waits for a second node."""
    made = GangWorld()
    made.add_node(node("n0"))
    members = gang_pods("train", 2, FULL)
    made.create(*members)
    assert not made.filter(members[0], [NodeName("n0")]).passed
    assert made.gangs == {"train": Phase.WAITING}
    assert made.scheduler.cache.violations() == []
    return made


def found(world: GangWorld) -> list[tuple[str, str]]:
    return [(each.invariant, each.detail) for each in world.scheduler.cache.violations()]


def turns(world: GangWorld) -> Queue:
    return world.scheduler.cache.gangs.waiting.queue


def test_a_gang_that_waits_in_a_place_that_is_no_longer_its_own(world: GangWorld) -> None:
    train = world.scheduler.cache.gangs.by_key[TRAIN]
    train.terms = replace(train.terms, claims=5)
    assert found(world) == [("queue", "default/train has changed since it was queued")]


def test_room_that_is_saved_for_a_gang_that_does_not_wait(world: GangWorld) -> None:
    world.create(*gang_pods("other", 1, FULL))
    turns(world).saved.gang = world.scheduler.cache.gangs.by_key[GangKey("default", "other")]
    assert ("queue", "the backfill reservation is for default/other, which does not wait") in found(world)


def test_a_queue_that_lacks_one_who_waits(world: GangWorld) -> None:
    [queue] = turns(world)._queues.values()
    anew = list(queue)
    queue.clear()
    assert found(world) == [("queue", f"queue [], from the entries {anew}")]


def test_copies_whose_total_is_not_their_sum(world: GangWorld) -> None:
    [counts] = turns(world).fits.copies._counts.values()
    counts.total += 1
    assert [invariant for invariant, _ in found(world)] == ["copies"]


def test_room_that_is_saved_for_a_gang_that_has_a_plan_or_holds_something_else(world: GangWorld) -> None:
    gang = world.scheduler.cache.gangs.by_key[TRAIN]
    turns(world).saved.gang = gang
    turns(world).saved.savings.begin(world.clock.steady())
    assert found(world) == []
    gang.phase = Phase.GATHERING
    assert [invariant for invariant, _ in found(world)] == ["gang_saved_for"]
    gang.phase = Phase.WAITING
    world.scheduler.cache.ledger.commit([slot("slot", "n0", FULL)])
    assert [invariant for invariant, _ in found(world)] == ["gang_saved_for"]


def test_a_gang_that_waits_with_a_member_at_its_barrier(world: GangWorld) -> None:
    gang = world.scheduler.cache.gangs.by_key[TRAIN]
    uid = next(iter(gang.roster.members))
    gang.barrier.arrived[uid] = NodeName("n0")
    assert "gang_waits_with_nothing" in [invariant for invariant, _ in found(world)]


def test_places_of_a_gang_that_is_no_more_behind_what_others_hold(world: GangWorld) -> None:
    world.create(pod("ordinary", {"cpu": 100}, node=NodeName("n0")))
    world.scheduler.cache.ledger.commit(
        [claim("claimed", "n0", {"cpu": 100}), slot("left", "n0", {"cpu": 100}, gang="gone")]
    )
    assert [invariant for invariant, _ in found(world)] == ["gang_owner"]
