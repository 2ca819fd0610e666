"""Raising, lowering and deleting a resource that is in use (mission.md section 5, scenarios 2, 3 and 4)."""

from __future__ import annotations

import pytest

from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Conflict, Ledger
from extender.core.ledger.units import Short
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, ledger_of, units
from tests.core.snapshots import snapshot

N1 = NodeName("n1")
R = ResourceKey("escher.dev/team.r")
HOLDER, NEWCOMER = PodUid("holder"), PodUid("newcomer")


@pytest.fixture(name="ledger")
def five_of_which_four_are_held() -> Ledger:
    ledger = ledger_of({"n1": {"cpu": 8000, R: 5}})
    ledger.assume(HOLDER, on=N1, units=units({R: 4}), until=NOW + 30)
    return ledger


def assume(ledger: Ledger, number: int) -> None:
    ledger.assume(NEWCOMER, on=N1, units=units({R: number}), until=NOW + 30)


def test_what_is_raised_in_use_is_all_free_after_release_and_never_more(ledger: Ledger) -> None:
    ledger.capacity.set(N1, R, 10)
    assert ledger.rows.free(N1, R) == 6
    ledger.forget(HOLDER)
    assert ledger.rows.free(N1, R) == 10
    with pytest.raises(Conflict) as refusal:
        assume(ledger, 11)
    assert refusal.value.cause == Short(R, asked=11, free=10)
    assert ledger_audit.violations(ledger) == []


def test_what_is_lowered_in_use_leaves_its_holder_and_admits_nobody_until_it_leaves(ledger: Ledger) -> None:
    ledger.capacity.set(N1, R, 2)
    assert ledger.holding(HOLDER) is not None
    assert ledger.rows.free(N1, R) == -2
    with pytest.raises(Conflict):
        assume(ledger, 1)
    ledger.forget(HOLDER)
    assert ledger.rows.free(N1, R) == 2
    assume(ledger, 2)


def test_what_is_deleted_in_use_is_gone_and_a_release_does_not_bring_it_back(ledger: Ledger) -> None:
    ledger.capacity.set(N1, R, 0)
    assert ledger.holding(HOLDER) is not None
    assert R not in ledger.rows[N1].capacity
    assert R not in ledger.totals.providers
    ledger.forget(HOLDER)
    assert ledger.rows.free(N1, R) == 0
    with pytest.raises(Conflict):
        assume(ledger, 1)


def test_a_second_delete_does_nothing(ledger: Ledger) -> None:
    ledger.capacity.set(N1, R, 0)
    gains = ledger.changes.gain_count
    ledger.capacity.set(N1, R, 0)
    ledger.capacity.set(NodeName("unknown"), R, 0)
    assert ledger.changes.gain_count == gains
    assert NodeName("unknown") not in ledger.rows


@pytest.mark.parametrize(("resource", "number"), [(R, -1), ("cpu", 1), ("nvidia.com/gpu", 1), ("escher.devil/r", 1)])
def test_a_negative_capacity_and_a_resource_that_is_not_ours_are_refused(
    ledger: Ledger, resource: ResourceKey, number: int
) -> None:
    before = snapshot(ledger)
    with pytest.raises(ValueError, match="cannot be set"):
        ledger.capacity.set(N1, resource, number)
    assert snapshot(ledger) == before


def test_capacity_outlives_a_node_that_leaves_and_is_there_when_it_returns(ledger: Ledger) -> None:
    ledger.capacity.remove_node(N1)
    ledger.capacity.remove_node(N1)
    assert list(ledger.rows.present()) == []
    assert R not in ledger.totals.providers
    assert ledger.rows.short(N1, units({R: 1})) == Short(R, asked=1, free=-4)
    ledger.capacity.set_node(N1, units(cpu=8000))
    assert ledger.rows.free(N1, R) == 1
    assert list(ledger.totals.providers[R]) == [N1]


def test_capacity_may_be_set_before_its_node_is_known() -> None:
    ledger = Ledger()
    ledger.capacity.set(N1, R, 3)
    assert ledger.rows.free(N1, R) == 0
    ledger.capacity.set_node(N1, units(cpu=1000))
    assert ledger.rows.free(N1, R) == 3


def test_what_a_node_says_about_our_own_domain_is_not_believed(ledger: Ledger) -> None:
    ledger.capacity.set_node(N1, units({"cpu": 8000, R: 100, "escher.dev/team.other": 7}))
    assert ledger.rows.free(N1, R) == 1
    assert ledger.rows.free(N1, ResourceKey("escher.dev/team.other")) == 0


def test_a_resource_asked_for_with_0_units_is_held_and_released_like_any_other(ledger: Ledger) -> None:
    ledger.assume(NEWCOMER, on=N1, units=units({"nvidia.com/gpu": 0}), until=NOW)
    assert ledger.forget(NEWCOMER) is not None
    assert ledger_audit.violations(ledger) == []


def test_a_node_that_repeats_itself_gains_nothing(ledger: Ledger) -> None:
    ledger.changes.drain_gains()
    ledger.capacity.set_node(N1, units(cpu=8000))
    ledger.capacity.set_node(N1, units(cpu=7000))
    assert not ledger.changes.drain_gains()
    ledger.capacity.set_node(N1, units(cpu=7001))
    assert list(ledger.changes.drain_gains()) == [N1]


def test_neither_does_a_resource_that_is_set_again_to_what_it_is_or_to_less(ledger: Ledger) -> None:
    ledger.capacity.set(N1, R, 3)
    ledger.changes.drain_gains()
    ledger.capacity.set(N1, R, 3)
    ledger.capacity.set(N1, R, 2)
    assert not ledger.changes.drain_gains()
    ledger.capacity.set(N1, R, 3)
    assert list(ledger.changes.drain_gains()) == [N1]


def test_every_change_in_a_nodes_favour_is_counted(ledger: Ledger) -> None:
    """So that what was found of an empty cluster is known to hold no more."""
    counts = []
    for _ in range(3):
        counts.append(ledger.changes.capacity_count)
        ledger.capacity.reconsider(N1)
    assert counts == sorted(set(counts))


def test_only_resources_of_the_ledgers_own_domain_can_be_set() -> None:
    ledger = Ledger("example.org")
    ledger.capacity.set(N1, ResourceKey("example.org/team.data"), 1)
    with pytest.raises(ValueError, match="cannot be set"):
        ledger.capacity.set(N1, R, 1)
