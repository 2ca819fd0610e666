"""Transactions over the ledger (mission.md section 4 and scenario 18)."""

from __future__ import annotations

import pytest

from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Detection, Holder, Holding, HoldingKind, Ledger, Mode, Stale
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, claim, ledger_of, slot, units
from tests.core.snapshots import snapshot

N1, N2 = NodeName("n1"), NodeName("n2")
CPU = ResourceKey("cpu")
GIB = 2**30


def kinds(ledger: Ledger) -> dict[str, str]:
    return {held.holder: held.node for held in ledger.rows.holdings()}


# -- scenario 18 -----------------------------------------------------------------------------------------------------


def a_row_and_two_private_copies() -> tuple[Ledger, dict[NodeName, int], dict[NodeName, int]]:
    ledger = ledger_of({"n1": {"cpu": 1000, "memory": 2 * GIB}})
    return ledger, snapshot(ledger).sequences, snapshot(ledger).sequences


A_QUARTER = {"cpu": 250, "memory": 3 * GIB // 4}


def test_two_copies_that_each_claim_what_fits_both_commit_by_resource_fit() -> None:
    ledger, first, second = a_row_and_two_private_copies()
    for holder, read in (("p1", first), ("p2", second)):
        outcome = ledger.commit([claim(holder, "n1", A_QUARTER)], detection=Detection.RESOURCE_FIT, read=read)
        assert outcome.conflicts == ()
    assert ledger.rows.free(N1, CPU) == 500


def test_of_two_copies_that_claim_on_one_row_the_second_conflicts_by_sequence_number() -> None:
    ledger, first, second = a_row_and_two_private_copies()
    one, two = claim("p1", "n1", A_QUARTER), claim("p2", "n1", A_QUARTER)
    assert ledger.commit([one], detection=Detection.SEQUENCE_NUMBER, read=first).committed == (one,)
    now = snapshot(ledger).sequences[N1]
    outcome = ledger.commit([two], detection=Detection.SEQUENCE_NUMBER, read=second)
    assert outcome.committed == ()
    assert outcome.conflicts == ((two, Stale(N1, read=second[N1], now=now)),)
    again = ledger.commit([two], detection=Detection.SEQUENCE_NUMBER, read=snapshot(ledger).sequences)
    assert again.committed == (two,)


@pytest.mark.parametrize("claims_before", [0, 1, 2])
def test_a_claim_on_a_row_that_was_not_read_conflicts_by_sequence_number(claims_before: int) -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    for number in range(claims_before):
        ledger.commit([claim(f"before-{number}", "n1", {"cpu": 100})])
    late = claim("late", "n1", {"cpu": 100})
    outcome = ledger.commit([late], detection=Detection.SEQUENCE_NUMBER, read={})
    assert outcome.conflicts == ((late, Stale(N1, read=-1, now=snapshot(ledger).sequences[N1])),)


def three_claims_one_too_many() -> tuple[Ledger, list[Holding]]:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 400}})
    return ledger, [claim("p1", "n1", {"cpu": 600}), claim("p2", "n1", {"cpu": 600}), claim("p3", "n2", {"cpu": 400})]


def test_of_three_claims_one_too_many_incremental_commits_two() -> None:
    ledger, claims = three_claims_one_too_many()
    outcome = ledger.commit(claims, mode=Mode.INCREMENTAL)
    assert outcome.committed == (claims[0], claims[2])
    assert outcome.conflicts == ((claims[1], Short(CPU, asked=600, free=400)),)
    assert kinds(ledger) == {"p1": "n1", "p3": "n2"}


def test_of_three_claims_one_too_many_all_or_nothing_commits_none_and_changes_nothing() -> None:
    ledger, claims = three_claims_one_too_many()
    before, gains = snapshot(ledger), ledger.changes.gain_count
    outcome = ledger.commit(claims, mode=Mode.ALL_OR_NOTHING)
    assert outcome.committed == ()
    assert outcome.conflicts == ((claims[1], Short(CPU, asked=600, free=400)),)
    assert (snapshot(ledger), ledger.changes.gain_count, kinds(ledger)) == (before, gains, {})


def test_a_release_does_not_make_a_copy_stale_and_a_claim_does() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.assume(PodUid("old"), on=N1, units=units(cpu=100), until=NOW)
    read = snapshot(ledger).sequences
    ledger.confirm(PodUid("old"), on=N1, units=units(cpu=100))
    ledger.forget(PodUid("old"))
    claims = [claim("p1", "n1", {"cpu": 100}), claim("p2", "n1", {"cpu": 100})]
    outcome = ledger.commit(claims, detection=Detection.SEQUENCE_NUMBER, read=read)
    assert outcome.committed == tuple(claims), "claims of one transaction do not make each other stale"


def test_a_copy_of_a_node_that_left_and_came_back_is_stale() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    read = snapshot(ledger).sequences
    ledger.capacity.remove_node(N1)
    one = claim("p1", "n1", {"cpu": 100})
    gone = ledger.commit([one], detection=Detection.SEQUENCE_NUMBER, read=read)
    assert gone.conflicts == ((one, Stale(N1, read=read[N1], now=0)),)
    ledger.capacity.set_node(N1, units(cpu=1000))
    assert ledger.commit([one], detection=Detection.SEQUENCE_NUMBER, read=read).committed == ()
    assert ledger.commit([one], detection=Detection.SEQUENCE_NUMBER).conflicts[0][1] == Stale(N1, read=-1, now=2)


# -- what a transaction gives up -------------------------------------------------------------------------------------


def test_slots_are_exchanged_for_pods_in_one_step() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.commit([slot("s1", "n1", {"cpu": 1000})])
    gains = ledger.changes.gain_count
    outcome = ledger.commit([claim("p1", "n1", {"cpu": 1000}, gang="train")], releasing=[Holder("s1")])
    assert outcome.conflicts == ()
    assert kinds(ledger) == {"p1": "n1"}
    assert ledger.changes.gain_count == gains, "nobody gains room by an exchange"


def test_two_holders_change_places() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.commit([claim("a", "n1", {"cpu": 1000}), claim("b", "n2", {"cpu": 1000})])
    for mode, (first, second) in {Mode.ALL_OR_NOTHING: (N2, N1), Mode.INCREMENTAL: (N1, N2)}.items():
        swap = [claim("a", first, {"cpu": 1000}), claim("b", second, {"cpu": 1000})]
        assert ledger.commit(swap, mode=mode).conflicts == ()
        assert kinds(ledger) == {"a": first, "b": second}


def test_a_refused_claim_keeps_what_its_holder_held_and_nobody_else_gets_it() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.commit([claim("a", "n1", {"cpu": 1000}), claim("full", "n2", {"cpu": 1000})])
    move, heir = claim("a", "n2", {"cpu": 1000}), claim("b", "n1", {"cpu": 1000})
    outcome = ledger.commit([heir, move], mode=Mode.INCREMENTAL)
    assert outcome.committed == ()
    assert kinds(ledger) == {"a": "n1", "full": "n2"}
    assert ledger.rows.free(N1, CPU) == 0


def test_what_was_refused_only_for_an_heirs_sake_is_weighed_again() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.commit([claim("a", "n1", {"cpu": 700}), claim("full", "n2", {"cpu": 1000})])
    heir, small, move = claim("b", "n1", {"cpu": 800}), claim("c", "n1", {"cpu": 300}), claim("a", "n2", {"cpu": 700})
    outcome = ledger.commit([heir, small, move], mode=Mode.INCREMENTAL)
    assert outcome.committed == (small,)
    assert [one.holder for one, _ in outcome.conflicts] == ["b", "a"]


def test_what_is_given_up_by_name_goes_even_if_its_own_claim_is_refused() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    ledger.commit([claim("a", "n1", {"cpu": 1000}), claim("full", "n2", {"cpu": 1000})])
    move, heir = claim("a", "n2", {"cpu": 1000}), claim("b", "n1", {"cpu": 1000})
    outcome = ledger.commit([heir, move], mode=Mode.INCREMENTAL, releasing=[Holder("a")])
    assert outcome.committed == (heir,)
    assert kinds(ledger) == {"b": "n1", "full": "n2"}


def test_nothing_is_given_up_where_nothing_is_committed() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.commit([slot("s", "n1", {"cpu": 500})])
    ledger.commit([claim("p", "n1", {"cpu": 1001})], releasing=[Holder("s")])
    ledger.commit([], releasing=[Holder("s")])
    assert kinds(ledger) == {"s": "n1"}


def test_a_claim_that_a_binding_has_met_already_is_committed_by_it() -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}})
    ledger.confirm(PodUid("p"), on=N1, units=units(cpu=1000))
    outcome = ledger.commit([claim("p", "n1", {"cpu": 1000})])
    assert [held.kind for held in outcome.committed] == [HoldingKind.BOUND]
    assert ledger.rows.free(N1, CPU) == 0


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ([claim("p", "n1", {"cpu": 1}), claim("p", "n2", {"cpu": 1})], "claims twice"),
        ([claim("p", "n1", {"cpu": -1})], "-1 of cpu"),
        ([Holding(Holder("p"), N1, units(cpu=1), HoldingKind.BOUND)], "is confirmed, not claimed"),
        ([Holding(Holder("s"), N1, {}, HoldingKind.RESERVATION, None, NOW)], "needs an owner and a deadline"),
        ([Holding(Holder("s"), N1, {}, HoldingKind.RESERVATION, GangKey("a", "b"))], "needs an owner and a deadline"),
    ],
)
def test_a_claim_that_makes_no_sense_is_a_defect_of_the_caller_and_changes_nothing(
    claims: list[Holding], why: str
) -> None:
    ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
    with pytest.raises(ValueError, match=why):
        ledger.commit([claim("good", "n1", {"cpu": 1}), *claims], mode=Mode.INCREMENTAL)
    assert kinds(ledger) == {}
    assert ledger_audit.violations(ledger) == []
