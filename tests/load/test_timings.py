"""Times are kept by name, exactly enough, and in as little room however many there are."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import pytest

from loadtests.load.results.timings import (
    CALLS,
    ENOUGH,
    LATENCIES,
    REFERENCE,
    VERBS,
    Files,
    Spread,
    Timings,
    ratio,
    verb_of,
)


def noted(*milliseconds: float) -> Spread:
    spread = Spread()
    for each in milliseconds:
        spread.note(each)
    return spread


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_are_off_by_a_quarter_of_a_percent_at_most(share: float) -> None:
    rng = random.Random(3)
    values = sorted(rng.lognormvariate(0, 2) for _ in range(5000))
    found = noted(*values).quantile(share)
    assert found == pytest.approx(values[int(share * 5000) - 1], rel=0.003)


def test_nothing_has_no_quantile_and_one_call_has_only_a_median() -> None:
    assert Spread().quantile(0.5) is None
    one = noted(7.0)
    assert one.quantile(0.5) == pytest.approx(7, rel=0.003)
    assert (one.quantile(0.9), one.most) == (None, 7.0)


def test_a_percentile_is_told_where_there_are_as_many_calls_as_it_needs() -> None:
    assert noted(*[1.0] * 99).quantile(0.99) is None
    assert noted(*[1.0] * 100).quantile(0.99) == pytest.approx(1, rel=0.003)


def test_a_million_calls_take_no_more_room_than_a_thousand() -> None:
    spread = noted(*(each / 100 for each in range(1, 1001)))
    for _ in range(10):
        spread.take(spread)
    assert spread.count == 1000 * 2**10
    assert len(spread.buckets) <= 1000


def test_windows_are_told_one_by_one_and_the_totals_have_them_all() -> None:
    timings = Timings()
    timings.note("POST", "filter", 2.0, failed=False)
    timings.note("POST", "filter", 9.0, failed=True)
    [first] = timings.window(1.0, users=4)
    assert tuple(first[:6]) == ("1.0", 4, "POST", "filter", 2, 1)
    assert timings.window(2.0, users=4) == []
    timings.note("POST", "filter", 4.0, failed=False)
    [total] = timings.totals(10.0)
    assert tuple(total[:5]) == ("POST", "filter", 3, 1, "0.30")
    assert total[-1] == "inf"


@pytest.mark.parametrize(("failed", "quantiles"), [(0, "1 1 1 "), (40, "1 inf inf "), (60, "inf inf inf ")])
def test_gangs_that_were_never_bound_are_infinitely_late(failed: int, quantiles: str) -> None:
    timings = Timings()
    for number in range(100):
        timings.note("gang", "created to bound", 1.0, failed=number < failed)
    [total] = timings.totals(60.0)
    assert total[2:4] == (100, failed)
    assert total[5:] == (*quantiles.split(" "), "inf" if failed else "1")


def test_calls_that_fail_sooner_than_others_are_answered_make_nothing_faster() -> None:
    timings = Timings()
    for number in range(100):
        timings.note("POST", "filter", 1.0 if number < 60 else 300.0, failed=number < 60)
    [row] = timings.window(1.0, users=4)
    assert tuple(row[4:]) == (100, 60, "inf", "inf", "inf", "inf")


def test_a_call_that_always_failed_is_infinitely_late() -> None:
    timings = Timings()
    timings.note("PUT", "policy", 9.0, failed=True)
    [total] = timings.totals(1.0)
    assert tuple(total[2:]) == (1, 1, "1.00", "inf", "", "", "", "inf")


def test_only_calls_that_both_were_asked_are_put_beside_each_other() -> None:
    timings = Timings()
    for name, took in (("bind", 4.0), (f"bind{REFERENCE}", 2.0), ("filter", 1.0), (f"preempt{REFERENCE}", 1.0)):
        timings.note("POST", name, took, failed=False)
    [(name, mine, its)] = timings.both()
    assert (name, mine.most, its.most) == ("bind", 4.0, 2.0)


def test_a_ratio_is_infinite_where_ours_failed_and_none_where_the_reference_did() -> None:
    assert [ratio(4.0, 2.0), ratio(math.inf, 2.0)] == [2.0, math.inf]
    assert [ratio(4.0, math.inf), ratio(math.inf, math.inf), ratio(None, 2.0)] == [None] * 3


def test_files_have_what_was_noted_up_to_their_end(tmp_path: Path) -> None:
    timings = Timings()
    files = Files(tmp_path, timings)
    timings.note("POST", "filter, ordinary", 2.0, failed=False)
    files.window(1.0, 3)
    assert len((tmp_path / CALLS).read_text().splitlines()) == 2, "it can be read while it grows"
    timings.note("POST", "filter, ordinary", 2.0, failed=False)
    files.end(2.0)
    with (tmp_path / CALLS).open() as text:
        assert [(row["second"], row["users"], row["name"]) for row in csv.DictReader(text)] == [
            ("1.0", "3", "filter, ordinary"),
            ("2.0", "0", "filter, ordinary"),
        ]
    with (tmp_path / LATENCIES).open() as text:
        assert [(row["calls"], row["a_second"], row["p50"]) for row in csv.DictReader(text)] == [("2", "1.00", "2")]


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("filter, ordinary, 500 of 5000 names", "filter"),
        ("filter, gang, live, turned away", "filter"),
        ("prioritize, ephemeral, live", "prioritize"),
        ("bind", "bind"),
        ("bind, answered with an error", "bind"),
        ("bind, gang, live", "bind, gang"),
        (f"filter, ordinary, 100 names{REFERENCE}", None),
        ("policy, create", None),
        ("gang, created to bound", None),
    ],
)
def test_a_call_counts_for_its_verb_and_what_is_none_for_nothing(name: str, verb: str | None) -> None:
    assert verb_of(name) == verb


def test_a_verb_has_a_row_when_it_was_called_often_enough_for_one(tmp_path: Path) -> None:
    timings = Timings()
    files = Files(tmp_path, timings)
    for second in (1, 2, 3, 4):
        for number in range(ENOUGH // 2):
            timings.note("POST", f"filter, {'ordinary' if number % 2 else 'gang'}, live", 2.0, failed=False)
        timings.note("POST", "bind, gang, live", 9.0, failed=False)
        files.window(second, 3)
    files.end(5.0)
    with (tmp_path / VERBS).open() as text:
        rows = [(row["second"], row["name"], row["calls"], row["p99"]) for row in csv.DictReader(text)]
    assert rows == [("2.0", "filter", "100", "2"), ("4.0", "filter", "100", "2")]
