"""Flat: whether what was sampled over time has changed for the worse, by more than is tolerated. Pure.

Samples that follow each other share their luck, so that the time that is judged is cut into BLOCKS of the same length,
and each counts as the median of its samples. The slope is Theil and Sen's: the median of the slopes between any two
blocks, which a few outliers do not move. Its interval is that of a bootstrap that draws blocks anew, expanded as
`figures` does, for two numbers of a line that are found from so few blocks. Told is not the slope but the change that
it makes from the beginning of that time to its end.

A verdict is by the whole interval: **flat** below the tolerance, **grew** above it (or **fell**, where falling is the
worse), and otherwise **undecided**: sample for longer, or on a machine at rest.

Sources: Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63, 1968; Wilcox, Introduction to
Robust Estimation and Hypothesis Testing, 2017, section 10.1 (the percentile bootstrap of the Theil-Sen slope).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np

from lab.compare.figures import LEVEL, MEDIAN, RESAMPLES, SEED, students_t

BLOCKS = 16
LEAST_BLOCKS = 8
"""With samples in them; of fewer nothing is said."""

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
    """Of a change: so large a share of what it was before, and `least`, in its own unit, where that is more.
    `falling`: what is bad about it is that it falls."""

    share: float
    least: float
    falling: bool = False

    def of(self, before: float) -> float:
        return max(self.share * abs(before), self.least)


@dataclass(frozen=True, slots=True)
class Trend:
    """From second `since` on it was `before`, and until `until` it changed by `change`; `low` and `high` are the ends
    of an interval that covers the true change in LEVEL of all runs, about."""

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
    """Of the samples from `since` to `until`; None where they are too few to say. What is infinite is left out: where
    a call failed, that is a finding of its own."""
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
    # A pair is there as often as its one block was drawn with its other.
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
