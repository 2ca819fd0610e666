"""Plans of seeds: plain values that a file holds, and that can do without any of their parts."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from loadtests.fault_simulation import drawing
from loadtests.fault_simulation.drawing import CPU_OF_NODE, plan_of
from loadtests.fault_simulation.plan import (
    MEANING,
    MENDED_WITHIN,
    VERSIONS,
    BadPlan,
    Fault,
    Plan,
    Work,
    in_words,
    read,
    work_in_words,
    written,
)
from loadtests.fault_simulation.shrinking import fewest, shrunk
from loadtests.life.works import PRIORITIES

SEEDS = range(500)


def test_a_seed_has_one_plan_and_a_file_holds_it() -> None:
    for seed in SEEDS:
        assert read(written(plan_of(seed))) == plan_of(seed)
    assert len({written(plan_of(seed)) for seed in SEEDS}) == len(SEEDS)


def test_every_kind_of_fault_and_of_work_is_drawn() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    assert Counter(each.kind for plan in plans for each in plan.faults).keys() == MEANING.keys()
    kinds = {"gang", "pods", "foreign", "resource", "transaction", "policy"}
    assert {each.kind for plan in plans for each in plan.works} == kinds
    assert {plan.replicas for plan in plans} == {1, 2}


def test_some_faults_come_together_just_before_somebodys_pods_are_bound() -> None:
    slow = refused = taken = 0
    for plan in map(plan_of, SEEDS):
        asked = [each.at for each in plan.works if each.kind in ("gang", "pods")]
        struck = [each for each in plan.faults if any(0 <= at - each.at <= 0.1 for at in asked)]
        bindings = [each for each in struck if each.of == "bindings"]
        given_up = [each for each in struck if each.kind == "time-out-call"]
        slow += any(late.at == early.at and late.seconds >= early.seconds for late in bindings for early in given_up)
        refusals = [each for each in bindings if each.kind == "refuse" and each.times >= 40]
        takers = [each for each in plan.works if each.kind == "foreign" and each.size == CPU_OF_NODE * plan.nodes]
        refused += bool(refusals)
        taken += bool(takers)
        assert all(any(0 <= taker.at - each.at <= 5.1 for each in refusals) for taker in takers)
    assert min(slow, refused, taken) > len(SEEDS) // 10


def test_others_bind_pods_while_room_is_given_out() -> None:
    works = [plan_of(seed).works for seed in SEEDS]
    foreign = [[each for each in some if each.kind == "foreign"] for some in works]
    assert len(SEEDS) // 3 < sum(map(bool, foreign)) < 2 * len(SEEDS) // 3
    assert {each.lasts is None for some in foreign for each in some} == {True, False}
    for some in works:
        first = min(each.at for each in some if each.kind in ("gang", "pods"))
        assert all(each.at >= first for each in some if each.kind == "foreign")


def test_restores_are_drawn_in_all_their_forms_and_change_nothing_else_of_a_seed() -> None:
    drawn = [each for seed in SEEDS for each in plan_of(seed).faults if each.kind == "restore"]
    assert len(SEEDS) // 4 < len(drawn) < len(SEEDS) // 2
    assert {each.of for each in drawn} == set(VERSIONS)
    assert {each.losing for each in drawn} == {True, False}
    for seed in range(20):
        works = plan_of(seed).works
        with patch.object(drawing, "_of_time", lambda rng, works: []):
            plain = plan_of(seed)
        assert plain.works == works
        assert set(plain.faults) <= set(plan_of(seed).faults)


def test_refusals_are_drawn_for_all_that_is_read_and_change_nothing_else_of_a_seed() -> None:
    drawn = [[each for each in plan_of(seed).faults if each.kind == "forbid"] for seed in SEEDS]
    assert len(SEEDS) // 5 < sum(map(bool, drawn)) < len(SEEDS) // 2
    assert {"reads", "reads of namespaces", "bindings"} <= {each.of for found in drawn for each in found}
    for seed in range(20):
        with patch.object(drawing, "_of_rights", lambda rng: []):
            plain = plan_of(seed)
        assert plain.works == plan_of(seed).works
        assert set(plain.faults) <= set(plan_of(seed).faults)


def test_transactions_and_priorities_are_drawn_in_all_their_forms_and_change_nothing_else_of_a_seed() -> None:
    works = [each for seed in SEEDS for each in plan_of(seed).works]
    transactions = [each for each in works if each.kind == "transaction"]
    assert {bool(each.capacity) for each in transactions} == {True, False}
    assert {bool(each.seconds) for each in transactions} == {True, False}
    assert {bool(each.patience) for each in transactions} == {True, False}
    high = [each for each in works if each.priority]
    assert {each.kind for each in high} == {"gang", "pods"}
    assert {each.priority for each in high} == PRIORITIES.keys()
    assert {(each.ledger, bool(each.asks)) for each in high} == {(a, b) for a in (True, False) for b in (True, False)}
    for seed in range(40):
        with (
            patch.object(drawing, "_transactions", lambda rng, faults, may_end: ([], [])),
            patch.object(drawing, "_with_priority", lambda rng, works: []),
        ):
            plain = plan_of(seed)
        assert plain.works == tuple(
            each for each in plan_of(seed).works if each.kind != "transaction" and not each.priority
        )
        assert set(plain.faults) <= set(plan_of(seed).faults)


def test_a_clock_that_is_set_by_hours_is_set_right_again() -> None:
    set_far = [sum(each.seconds for each in plan_of(seed).faults if abs(each.seconds) >= 3600) for seed in SEEDS]
    assert not any(set_far)
    assert any(each.seconds == -36000.0 for seed in SEEDS for each in plan_of(seed).faults)


def test_a_run_goes_on_until_a_restore_must_be_known() -> None:
    assert Plan(0, (), (Fault("restore", 5.0, 10.0, of="on"),)).ends == 15.0 + MENDED_WITHIN
    assert Plan(0, (), (Fault("set-clock", 5.0, 36000.0),)).ends == 5.0


def test_a_file_from_before_faults_could_be_late_is_read() -> None:
    old = b"""{"seed": 5, "works": [{"kind": "gang", "name": "g0", "at": 0.5, "size": 3}],
        "faults": [{"kind": "refuse", "at": 1.0, "of": "bindings", "times": 2}], "nodes": 2}"""
    expected = (Work("gang", "g0", 0.5, size=3),), (Fault("refuse", 1.0, of="bindings", times=2),)
    assert read(old) == Plan(5, *expected, nodes=2)


def test_a_killed_service_is_away_for_longer_than_what_it_sent_may_be_late() -> None:
    faults = [each for seed in SEEDS for each in plan_of(seed).faults]
    late = max(each.seconds for each in faults if each.kind in ("late-request", "repeat-request"))
    assert late < min(each.seconds for each in faults if each.kind == "kill-service")


def test_a_plan_says_when_all_of_it_has_begun_and_what_goes_wrong_has_ended() -> None:
    works = (Work("gang", "a", 1.0), Work("pods", "b", 2.0, lasts=3.0))
    assert Plan(0, works, ()).ends == 5.0
    assert Plan(0, works, (Fault("outage", 4.0, 6.0), Fault("set-clock", 9.0, -60.0))).ends == 10.0


def test_it_is_told_in_words() -> None:
    fault = Fault("late-request", 1.5, 0.25, of="bindings", skip=2, times=3)
    assert in_words(fault) == "1.50 s late-request, bindings, 0.25 s, after 2 others, 3 times"
    assert in_words(Fault("kill-service", 0.0, 2.0, losing=True)) == "0.00 s kill-service, 2.00 s, losing"
    assert work_in_words(Work("gang", "train", 3.0, size=4)) == "3.00 s gang train (size 4)"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"seed": 1}', b'{"seed": 1, "works": [], "faults": [{}]}'])
def test_a_file_that_holds_no_plan_is_refused(content: bytes) -> None:
    with pytest.raises(BadPlan, match="--replay"):
        read(content)


class TestShrinking:
    def test_leaves_what_it_takes_to_fail_and_nothing_else(self) -> None:
        asked: list[tuple[int, ...]] = []

        def fails(items: tuple[int, ...]) -> bool:
            asked.append(items)
            return {3, 11} <= set(items)

        assert fewest(range(16), fails) == (3, 11)
        assert len(asked) < 60

    def test_leaves_nothing_where_it_fails_anyway(self) -> None:
        assert fewest(range(7), lambda items: True) == ()

    def test_leaves_all_where_each_is_needed(self) -> None:
        assert fewest("abc", lambda items: items == ("a", "b", "c")) == ("a", "b", "c")

    def test_a_plan_loses_faults_first_and_then_works(self) -> None:
        plan = plan_of(31)
        needed, work = plan.faults[-1], plan.works[-1]

        def fails(tried: Plan) -> bool:
            return needed in tried.faults and work in tried.works

        smaller = shrunk(plan, fails)
        assert (smaller.faults, smaller.works) == ((needed,), (work,))
        assert (smaller.seed, smaller.nodes) == (plan.seed, plan.nodes)


def test_in_some_seeds_gangs_and_single_pods_want_one_host_port() -> None:
    drawn = [{work.kind for work in plan_of(seed).works if work.port} for seed in range(200)]
    assert 10 <= sum(bool(kinds) for kinds in drawn) <= 50
    assert {"gang", "pods"} in drawn
