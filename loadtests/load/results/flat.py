"""Flat: decides whether samples over time changed for the worse, by more than is tolerated. Pure.

Consecutive samples are correlated. So the judged time is cut into BLOCKS of equal length, and each block counts as the
median of its samples. The slope is Theil and Sen's: the median of the slopes between any two blocks, which a few
outliers do not move. Its interval comes from a bootstrap over blocks. It is expanded as in `figures`, because two
numbers of a line are estimated from so few blocks. The result is the change that the slope makes over the judged time.

The verdict uses the whole interval: **flat** below the tolerance, **grew** above it (or **fell**, if falling is worse).
Otherwise it is **undecided**: sample for longer, or on an idle machine.

Sources: Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63, 1968. Wilcox, Introduction to
Robust Estimation and Hypothesis Testing, 2017, 10.1 (percentile bootstrap of that slope).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np

from lab.compare.reporting.figures import LEVEL, MEDIAN, RESAMPLES, SEED, students_t

BLOCKS = 16
LEAST_BLOCKS = 8
"""Blocks that must have samples; with fewer there is no trend."""

Point = tuple[float, float]
"""Second and value."""


class Verdict(Enum):
    FLAT = "flat"
    GREW = "grew"
    FELL = "fell"
    UNDECIDED = "undecided"

    @property
    def is_worse(self) -> bool:
        return self in (Verdict.GREW, Verdict.FELL)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A change up to `share` of the value before, or up to `least`. `falling`: a fall is worse."""

    share: float
    least: float
    falling: bool = False

    def of(self, before: float) -> float:
        return max(self.share * abs(before), self.least)


@dataclass(frozen=True, slots=True)
class Trend:
    """A value changed by `change`, from `before` at second `since` until second `until`.

    `low` and `high` are the ends of an interval that covers the true change in about LEVEL of all runs.
    """

    since: float
    until: float
    before: float
    change: float
    low: float
    high: float

    @property
    def line(self) -> tuple[Point, Point]:
        return (self.since, self.before), (self.until, self.before + self.change)


def trend(points: Sequence[Point], since: float, until: float) -> Trend | None:
    """Returns the trend from `since` to `until`; None if samples are few. Omits infinite values."""
    blocks: dict[int, list[Point]] = {}
    for second, value in points:
        if since <= second < until and isfinite(value):
            blocks.setdefault(int(BLOCKS * (second - since) / (until - since)), []).append((second, value))
    if len(blocks) < LEAST_BLOCKS:
        return None
    at = np.array([np.mean([second for second, _ in block]) for _, block in sorted(blocks.items())])
    values = np.array([np.median([value for _, value in block]) for _, block in sorted(blocks.items())])
    first, second = np.array(list(combinations(range(len(at)), 2))).T
    slopes = (values[second] - values[first]) / (at[second] - at[first])
    order = np.argsort(slopes, kind="stable")
    drawn = np.random.default_rng(SEED).multinomial(len(at), np.full(len(at), 1 / len(at)), size=RESAMPLES)
    times = np.vstack([np.ones(len(at), dtype=np.int64), drawn])
    # A pair occurs as often as its one block was drawn, times its other.
    found = MEDIAN(slopes[order], (times[:, first] * times[:, second])[:, order])
    outside = NormalDist().cdf(-sqrt(len(at) / (len(at) - 2)) * students_t(LEVEL, len(at) - 2))
    slope, (low, high) = found[0], np.quantile(found[1:], [outside, 1 - outside])
    before, span = float(np.median(values - slope * (at - since))), until - since
    return Trend(since, until, before, float(slope * span), float(low * span), float(high * span))


def judged(found: Trend | None, tolerance: Tolerance) -> Verdict:
    if found is None:
        return Verdict.UNDECIDED
    least, most = (-found.high, -found.low) if tolerance.falling else (found.low, found.high)
    bound = tolerance.of(found.before)
    if most < bound:
        return Verdict.FLAT
    if least > bound:
        return Verdict.FELL if tolerance.falling else Verdict.GREW
    return Verdict.UNDECIDED
