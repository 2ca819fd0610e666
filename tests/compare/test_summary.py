"""The summary: which figures are in it, with what is behind them."""

from __future__ import annotations

import csv
import io

import pytest

from lab.compare.reporting.judging import judge
from lab.compare.reporting.measured import measured
from lab.compare.reporting.summary import summary
from lab.compare.runs import Recorded
from tests.compare.runs_made import compared, contended

TOOK = {"ungrouped": 0.2, "appspace": 0.9, "libspace": 0.8, "extender": 0.25, "native": 0.1}
Rows = dict[tuple[str, str, str, str], dict[str, str]]


def rows(recorded: Recorded) -> Rows:
    """By approach, figure, statistic and base."""
    table = measured(recorded)
    found = list(csv.DictReader(io.StringIO(summary(table, judge(table)))))
    by_name = {(row["approach"], row["figure"], row["statistic"], row["base"]): row for row in found}
    assert len(by_name) == len(found)
    return by_name


@pytest.fixture(scope="module")
def single() -> Rows:
    return rows(compared(TOOK, rounds=8, stuck={"appspace": 2}))


@pytest.fixture(scope="module")
def crowded() -> Rows:
    return rows(contended({"appspace": 8.0, "libspace": 2.0, "extender": 0.5}))


def test_a_figure_has_its_interval_and_how_many_values_and_rounds_are_behind_it(single: Rows) -> None:
    found = single["native", "to_bound", "median", "ungrouped"]
    assert float(found["low"]) < 0.5 < float(found["high"])
    assert (found["values"], found["rounds"]) == ("8", "8")
    assert {approach for approach, *_ in single} == set(TOOK)


def test_claims_are_in_it_with_their_verdicts(single: Rows) -> None:
    goal = single["extender", "Goal: in at most 0.4 of LibSpace's time (2.5 times faster)", "ratio", "libspace"]
    assert (goal["verdict"], goal["rounds"]) == ("holds", "8")
    assert float(goal["low"]) < float(goal["value"]) < float(goal["high"]) < 0.4
    never = single["extender", "No gang is left bound in part by `extender`", "count", ""]
    assert (never["value"], never["low"], never["values"], never["verdict"]) == ("0", "", "9", "holds")


def test_what_is_stuck_and_what_it_costs_is_in_it(single: Rows) -> None:
    assert single["appspace", "stuck", "count", ""]["value"] == "2"
    assert single["appspace", "trials", "count", ""]["value"] == "8"
    assert single["extender", "attempts_per_pod", "mean", ""]["value"] == "1.5"
    assert float(single["extender", "cpu_per_gang", "mean", ""]["value"]) == pytest.approx(0.06)
    assert ("extender", "conflicts_per_pod", "mean", "") not in single


def test_deadlocks_what_was_left_in_part_and_what_was_longest_is_in_it(crowded: Rows) -> None:
    def value(approach: str, figure: str, statistic: str) -> float:
        return float(crowded[approach, figure, statistic, ""]["value"])

    assert value("libspace", "deadlocks", "count") == value("libspace", "trials_with_deadlocks", "count") == 8
    assert value("libspace", "deadlocks_not_resolved", "count") == value("extender", "deadlocks", "count") == 0
    assert value("libspace", "deadlock", "longest") == pytest.approx(2.33)
    assert (value("libspace", "left_in_part", "count"), value("extender", "left_in_part", "count")) == (16, 0)
    assert value("extender", "partly_bound", "longest") == pytest.approx(0.84)
    assert value("extender", "in_vain_of_used", "ratio of means") == pytest.approx(0.314)
    assert ("extender", "deadlock", "longest", "") not in crowded
