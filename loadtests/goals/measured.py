"""What was measured of one figure, and how far it reaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isnan

from lab.compare.figures import ROUNDS, Estimate
from loadtests.goals.rows import Row


@dataclass(frozen=True)
class Measured:
    """`now`, and an interval for it, in the unit of the row; `samples`: of so many repetitions, whole ones of which
    were drawn anew for the interval."""

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
    """By the whole interval, as `escher compare` judges claims: what lies on both sides of a bound has not reached it,
    and has not missed it either; fewer than ROUNDS repetitions decide nothing."""
    best, worst = (found.high, found.low) if row.more_is_better else (found.low, found.high)
    if found.samples < ROUNDS or isnan(best) or isnan(worst):
        return Standing.UNDECIDED
    if row.reaches(worst, row.goal):
        return Standing.GOAL
    if row.reaches(worst, row.must):
        return Standing.MUST
    return Standing.UNDECIDED if row.reaches(best, row.must) else Standing.MISSED
