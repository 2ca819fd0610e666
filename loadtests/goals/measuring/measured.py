"""A measured figure, and which bounds it reaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isnan

from lab.compare.reporting.figures import ROUNDS, Estimate
from loadtests.goals.measuring.rows import Row


@dataclass(frozen=True)
class Measured:
    """`now` and its interval, in the row's unit. `samples`: repetitions drawn for the interval."""

    row: str
    now: float
    low: float
    high: float
    samples: int


def of_estimate(row: str, found: Estimate) -> Measured:
    return Measured(row, found.value, found.low, found.high, found.rounds)


class Standing(Enum):
    GOAL = "goal reached"
    MUST = "must reached"
    MISSED = "MISSED"
    UNDECIDED = "undecided"


def standing(row: Row, found: Measured) -> Standing:
    """By the whole interval. Undecided: both sides of a bound, or fewer than ROUNDS samples."""
    best, worst = (found.high, found.low) if row.more_is_better else (found.low, found.high)
    if found.samples < ROUNDS or isnan(best) or isnan(worst):
        return Standing.UNDECIDED
    if row.reaches(worst, row.goal):
        return Standing.GOAL
    if row.reaches(worst, row.must):
        return Standing.MUST
    return Standing.UNDECIDED if row.reaches(best, row.must) else Standing.MISSED
