"""The life of a holding: reserved, assumed, confirmed, forgotten; in order, late, and twice."""

from __future__ import annotations

import pytest

from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Conflict, Holder, HoldingKind, Settled
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, claim, ledger_of, slot, units

N1, N2 = NodeName("n1"), NodeName("n2")
CPU = ResourceKey("cpu")
P = PodUid("p")
TRAIN = GangKey("default", "train")


def test_an_assumption_that_is_confirmed_has_no_deadline_and_counts_once() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.assume(P, on=N1, units=units(cpu=600), until=NOW + 30, owner=TRAIN)
    ledger.confirm(P, on=N1, units=units(cpu=600))
    assert ledger.next_deadline() is None
    assert ledger.expire(NOW + 60) == []
    assert ledger.rows.free(N1, CPU) == 400
    assert [held.kind for held in ledger.held_for(TRAIN)] == [HoldingKind.BOUND]


def test_confirming_what_was_assumed_gains_no_room_and_wakes_nobody() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.assume(P, on=N1, units=units(cpu=600), until=NOW + 30)
    before = ledger.changes.gain_count
    ledger.confirm(P, on=N1, units=units(cpu=600))
    ledger.confirm(P, on=N1, units=units(cpu=600))
    assert ledger.changes.gain_count == before


def test_a_pod_bound_elsewhere_than_assumed_frees_the_node_it_was_assumed_on() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.assume(P, on=N1, units=units(cpu=600), until=NOW + 30)
    ledger.confirm(P, on=N2, units=units(cpu=600))
    assert (ledger.rows.free(N1, CPU), ledger.rows.free(N2, CPU)) == (1000, 400)
    assert list(ledger.changes.drain_gains()) == [N1]


def test_a_bound_pod_is_counted_even_where_it_does_not_fit_and_before_its_node_is_known() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.confirm(P, on=N1, units=units(cpu=1500))
    ledger.confirm(PodUid("q"), on=N2, units=units(cpu=100))
    assert ledger.rows.free(N1, CPU) == -500
    ledger.capacity.set_node(N2, units(cpu=1000))
    assert ledger.rows.free(N2, CPU) == 900


def test_a_late_assumption_does_not_undo_a_binding() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.confirm(P, on=N1, units=units(cpu=600))
    ledger.assume(P, on=N1, units=units(cpu=600), until=NOW + 30)
    assert ledger.next_deadline() is None
    with pytest.raises(Conflict) as refusal:
        ledger.assume(P, on=N2, units=units(cpu=600), until=NOW + 30)
    assert refusal.value.cause == Settled(N1)
    held = ledger.holding(P)
    assert held is not None
    assert (held.node, held.kind) == (N1, HoldingKind.BOUND)


def test_a_transaction_does_not_give_up_a_binding() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.confirm(P, on=N1, units=units(cpu=600))
    outcome = ledger.commit([claim("q", "n1", {"cpu": 600})], releasing=[P])
    assert outcome.conflicts[0][1] == Short(CPU, asked=600, free=400)


def test_an_assumption_replaces_what_its_pod_held_before() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.assume(P, on=N1, units=units(cpu=600), until=NOW + 30)
    ledger.assume(P, on=N1, units=units(cpu=700), until=NOW + 40)
    assert ledger.rows.free(N1, CPU) == 300
    ledger.assume(P, on=N2, units=units(cpu=700), until=None)
    assert (ledger.rows.free(N1, CPU), ledger.next_deadline()) == (1000, None)
    assert ledger.totals.unbound_on == {N2: 1}


def test_what_is_not_confirmed_in_time_expires_in_order_of_deadline() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    for index, seconds in enumerate((3, 1, 2, 9)):
        ledger.assume(PodUid(f"p{index}"), on=N1, units=units(cpu=100), until=NOW + seconds)
    assert ledger.next_deadline() == NOW + 1
    assert [held.holder for held in ledger.expire(NOW + 3)] == ["p1", "p2", "p0"]
    assert ledger.rows.free(N1, CPU) == 900


def test_what_is_kept_lives_until_its_new_deadline() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.assume(P, on=N1, units=units(cpu=100), until=NOW + 1)
    ledger.keep(P, None)
    assert ledger.expire(NOW + 100) == []
    ledger.keep(P, NOW + 101)
    ledger.keep(PodUid("nobody"), NOW)
    assert len(ledger.expire(NOW + 101)) == 1


def test_a_reservation_always_has_an_owner_and_a_deadline() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.reserve(Holder("s"), on=N1, units=units(cpu=100), owner=TRAIN, until=NOW)
    with pytest.raises(ValueError, match="owner and a deadline"):
        ledger.keep(Holder("s"), None)
    assert ledger.next_deadline() == NOW


def test_a_gangs_holdings_are_found_by_their_owner_in_the_order_taken() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.commit([slot("s2", "n2", {"cpu": 1}), slot("s1", "n1", {"cpu": 1}), slot("x", "n1", {}, gang="other")])
    assert [held.holder for held in ledger.held_for(TRAIN)] == ["s2", "s1"]
    ledger.commit([claim("p", "n1", {"cpu": 1}, gang="train")], releasing=[Holder("s2")])
    assert [held.holder for held in ledger.held_for(TRAIN)] == ["s1", "p"]
    ledger.forget(P)
    ledger.release(Holder("s1"))
    assert ledger.held_for(TRAIN) == []


def test_forgetting_what_holds_nothing_does_nothing() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    assert ledger.forget(P) is None
    assert ledger.changes.gain_count == ledger_of({"n1": {"cpu": 1000}}).changes.gain_count


def test_a_node_is_forgotten_when_it_is_away_and_nothing_is_held_there() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.confirm(P, on=N1, units=units(cpu=600))
    ledger.capacity.remove_node(N1)
    assert N1 in ledger.rows
    ledger.forget(P)
    assert N1 not in ledger.rows
    assert not ledger.changes.drain_gains(), "a node that is away has no room to gain"


def test_what_another_holder_holds_can_be_counted_as_free() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.confirm(P, on=N1, units=units(cpu=600))
    assert ledger.rows.short(N1, units(cpu=700)) == Short(CPU, asked=700, free=400)
    assert ledger.rows.short(N1, units(cpu=1000), without=[P, P]) is None
    assert ledger.rows.short(N1, units(cpu=1001), without=[P, P]) == Short(CPU, asked=1001, free=1000)
    assert ledger.rows.short(N2, units({"cpu": 0, "memory": 1})) == Short(ResourceKey("memory"), asked=1, free=0)
    assert ledger.rows.short(N2, {}) is None


def test_every_broken_invariant_is_found() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000, "escher.dev/team.r": 1}, "n2": {"cpu": 1}})
    ledger.commit([slot("s", "n1", {"cpu": 1})])
    row = ledger.rows[N1]
    row.held[CPU] = 5
    row.unbound = 5
    row.capacity[CPU] = 7
    ledger.rows[N2].present = False
    ledger.totals.providers.clear()
    ledger._owned.clear()
    ledger.totals.places["a"] = 1
    ledger._expiry.until.clear()
    ledger._where.clear()
    ledger.totals.unbound_on.clear()
    row.holdings[Holder("t")] = row.holdings[Holder("s")]
    object.__setattr__(row.holdings[Holder("s")], "until", None)
    found = [(violation.invariant, violation.detail.split(" ")[0]) for violation in ledger_audit.violations(ledger)]
    assert found.count(("ledger_totals", "n1:")) == 3
    assert found.count(("ledger_totals", "n2:")) == 2
    assert found.count(("ledger_index", "the")) == 5
    assert ("ledger_index", "s") in found
    assert ("reservation_without_owner_or_deadline", "t") in found
    assert ledger_audit.recount(ledger) != {N1: row.held, N2: {}}
