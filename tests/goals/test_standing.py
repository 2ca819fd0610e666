"""Whether a goal is reached is told by the whole interval, and every row is told, measured or not."""

from __future__ import annotations

from math import inf, nan

import pytest

from lab.compare.reporting.figures import Estimate
from loadtests.goals.__main__ import MEASURES
from loadtests.goals.measuring.measured import Measured, Standing, of_estimate, standing
from loadtests.goals.measuring.rows import BY_NAME, COMPARE, HTTP, ROWS, Row
from loadtests.goals.measuring.table import NO_MEASURE, NOT_MEASURED, table

LESS = Row("a", "of b", 0.2, 0.45, HTTP)
MORE = Row("c", "of d", 0.98, 0.90, COMPARE, more_is_better=True)


def found(low: float, high: float, samples: int = 30, row: str = "a") -> Measured:
    return Measured(row, (low + high) / 2, low, high, samples)


@pytest.mark.parametrize(
    ("row", "low", "high", "said"),
    [
        (LESS, 0.1, 0.19, Standing.GOAL),
        (LESS, 0.1, 0.2, Standing.GOAL),
        (LESS, 0.19, 0.21, Standing.MUST),
        (LESS, 0.4, 0.5, Standing.UNDECIDED),
        (LESS, 0.1, inf, Standing.UNDECIDED),
        (LESS, 0.46, 0.5, Standing.MISSED),
        (LESS, inf, inf, Standing.MISSED),
        (LESS, nan, nan, Standing.UNDECIDED),
        (MORE, 0.98, 1.1, Standing.GOAL),
        (MORE, 0.92, 0.99, Standing.MUST),
        (MORE, 0.85, 0.95, Standing.UNDECIDED),
        (MORE, 0.5, 0.89, Standing.MISSED),
    ],
)
def test_a_bound_is_reached_or_missed_if_the_whole_interval_is_on_that_side(
    row: Row, low: float, high: float, said: Standing
) -> None:
    assert standing(row, found(low, high)) is said


def test_a_few_repetitions_decide_nothing() -> None:
    assert standing(LESS, found(0.1, 0.11, samples=5)) is Standing.UNDECIDED
    assert standing(LESS, found(0.1, 0.11, samples=6)) is Standing.GOAL


def test_samples_are_repetitions_and_not_calls() -> None:
    assert of_estimate("a", Estimate(0.5, 0.4, 0.6, 600, 30)) == Measured("a", 0.5, 0.4, 0.6, 30)


def cells(text: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {row[0]: row for row in rows}


def test_what_was_not_measured_has_no_number_and_is_told() -> None:
    without = Row("e", "of f", 1.0, 1.2)
    told = cells(table({}, {}, [HTTP], [LESS, without]))
    assert told["a"] == ["a", "of b", "0.2", "0.45", "–", "–", NOT_MEASURED]
    assert told["e"] == ["e", "of f", "1", "1.2", "–", "–", NO_MEASURE]


def test_what_was_measured_stands_beside_goal_must_and_what_was_before() -> None:
    told = cells(table({"a": Measured("a", 0.15, 0.14, 0.16, 30)}, {"a": 0.31}, [HTTP], [LESS]))
    assert told["a"] == ["a", "of b", "0.2", "0.45", "0.15 (0.14–0.16)", "0.31", "goal reached"]


def test_what_is_about_no_row_stands_at_the_end() -> None:
    told = cells(table({"z": Measured("z", 3.0, 2.0, 4.0, 30)}, {}, [HTTP], [LESS]))
    assert list(told)[-1] == "z"
    assert told["z"][2:4] == ["–", "–"]


def test_the_table_is_whole_without_a_single_measurement() -> None:
    told = cells(table({}, {}, {COMPARE, *MEASURES}))
    assert list(told)[2:] == [row.name for row in ROWS]
    assert {row[-1] for name, row in told.items() if name in BY_NAME} == {NOT_MEASURED}


def test_every_row_has_a_measure_and_every_measure_a_row() -> None:
    assert {row.measure for row in ROWS} == {COMPARE, *MEASURES}


def test_no_two_rows_have_the_same_name_and_a_goal_is_not_easier_than_what_must_be() -> None:
    assert len(BY_NAME) == len(ROWS)
    assert [row.name for row in ROWS if not row.reaches(row.goal, row.must)] == []
