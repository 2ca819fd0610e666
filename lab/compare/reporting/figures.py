"""Figures: quantiles, means and ratios with bootstrap percentile intervals, and claims. Pure.

Resampling draws whole repetitions, not single gangs, because gangs of one trial share its conditions. Approaches are
interleaved in rounds, so a comparison draws the same repetitions of both. The same samples give the same figures. A
gang that was never placed is infinitely late, and counts. A median is finite if more than half of the gangs were
placed.

Percentile intervals of means are too narrow if there are few rounds: resamples vary less than samples do, by the root
of (n - 1) / n. Their quantiles are about a normal's, not Student's. They are expanded to those.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13 (percentile intervals); Hesterberg,
What Teachers Should Know About the Bootstrap, The American Statistician 69(4), 2015 (the expanded percentile interval);
Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 26.7.4 (Student's t).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, cos, floor, inf, pi, sin, sqrt, tan
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
RESAMPLES = 2000
SEED = 20221107
"""The seed of the resampling; a run's figures do not depend on the run's own seed."""
ROUNDS = 6
"""Fewer decide nothing: chance puts all of five on one side more often than 1 - LEVEL."""
_AT_ONCE = 4_000_000

Sample = Mapping[int, Sequence[float]]
"""The measured values by repetition."""
Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Statistic = Callable[[Numbers, Counts], Numbers]
"""From sorted values, and their counts by resample (in rows), to one number by resample."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value` of the sample; its interval covers the true one in about LEVEL of runs (nan: none).

    `count` values of `rounds` rounds went into it."""

    value: float
    low: float
    high: float
    count: int
    rounds: int

    def times(self, factor: float) -> Estimate:
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def above(self, bound: float) -> bool:
        """Whether the whole interval is above `bound` and there are enough rounds to decide."""
        return self.rounds >= ROUNDS and self.low > bound

    def below(self, bound: float) -> bool:
        return self.rounds >= ROUNDS and self.high < bound


def quantile(share: float) -> Statistic:
    """Interpolates between two values (Hyndman and Fan's type 7); infinite if either is."""

    def of(values: Numbers, counts: Counts) -> Numbers:
        through = np.cumsum(counts, axis=1)
        where = share * (through[:, -1] - 1)
        below = np.floor(where)
        low, high = (values[(through <= at[:, None]).sum(axis=1)] for at in (below, np.ceil(where)))
        with np.errstate(invalid="ignore"):
            found: Numbers = np.where(low == high, low, low + (where - below) * (high - low))
        return found

    return of


def mean(values: Numbers, counts: Counts) -> Numbers:
    found: Numbers = (np.where(counts > 0, values, 0.0) * counts).sum(axis=1) / counts.sum(axis=1)
    return found


MEDIAN, P90, P99 = quantile(0.5), quantile(0.9), quantile(0.99)


def estimate(sample: Sample, statistic: Statistic = MEDIAN, *, seed: int = SEED) -> Estimate | None:
    """None if the sample is empty."""
    repetitions = sorted(number for number, values in sample.items() if values)
    if not repetitions:
        return None
    return _estimate(_resampled(sample, repetitions, statistic, seed), sample, repetitions, statistic)


def ratio(sample: Sample, base: Sample, statistic: Statistic = MEDIAN, *, seed: int = SEED) -> Estimate | None:
    """The ratio over the repetitions that both have; None if there are none."""

    def divided(ours: Numbers, theirs: Numbers) -> Numbers:
        with np.errstate(divide="ignore", invalid="ignore"):
            return ours / theirs

    found = _compared(sample, base, statistic, seed, divided)
    return found and replace(found, low=max(found.low, 0.0))


def difference(sample: Sample, base: Sample, statistic: Statistic = MEDIAN, *, seed: int = SEED) -> Estimate | None:
    """The difference over the repetitions that both have; None if there are none."""

    def less(ours: Numbers, theirs: Numbers) -> Numbers:
        with np.errstate(invalid="ignore"):
            return ours - theirs

    return _compared(sample, base, statistic, seed, less)


def _compared(
    sample: Sample, base: Sample, statistic: Statistic, seed: int, how: Callable[[Numbers, Numbers], Numbers]
) -> Estimate | None:
    both = sorted(number for number in sample.keys() & base.keys() if sample[number] and base[number])
    if not both:
        return None
    ours, theirs = (_resampled(each, both, statistic, seed) for each in (sample, base))
    return _estimate(how(ours, theirs), sample, both, statistic)


def _resampled(sample: Sample, repetitions: Sequence[int], statistic: Statistic, seed: int) -> Numbers:
    """The statistic of the sample, then of resamples; the same seed draws the same repetitions."""
    pooled = np.array([value for number in repetitions for value in sample[number]], dtype=np.float64)
    owner = np.repeat(np.arange(len(repetitions)), [len(sample[number]) for number in repetitions])
    order = np.argsort(pooled, kind="stable")
    pooled, owner = pooled[order], owner[order]
    drawn = np.random.default_rng(seed).multinomial(
        len(repetitions), np.full(len(repetitions), 1 / len(repetitions)), size=RESAMPLES
    )
    times = np.vstack([np.ones(len(repetitions), dtype=np.int64), drawn])
    step = max(1, _AT_ONCE // len(pooled))
    parts = [statistic(pooled, times[at : at + step][:, owner]) for at in range(0, len(times), step)]
    return np.concatenate(parts)


def _estimate(found: Numbers, sample: Sample, repetitions: Sequence[int], statistic: Statistic) -> Estimate:
    """`found[0]` is the sample's. A nan, where both sides were infinite, may be any value."""
    drawn, outside = found[1:], (1 - LEVEL) / 2
    if statistic is mean:
        outside = _expanded(len(repetitions))
    below, above = (np.sort(np.where(np.isnan(drawn), instead, drawn)) for instead in (-inf, inf))
    last = len(drawn) - 1
    low, high = below[floor(outside * last)], above[ceil((1 - outside) * last)]
    count = sum(len(sample[number]) for number in repetitions)
    return Estimate(float(found[0]), float(low), float(high), count, len(repetitions))


def _expanded(rounds: int) -> float:
    """The share of resamples of a mean beyond each end (Hesterberg's expanded percentile)."""
    if rounds == 1:
        return 0.0
    return NormalDist().cdf(-sqrt(rounds / (rounds - 1)) * students_t(LEVEL, rounds - 1))


def students_t(inner: float, freedom: int) -> float:
    """The t with the share `inner` of Student's distribution in [-t, t]; `freedom`: its degrees."""
    low, high = 0.0, pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, freedom) < inner else (low, angle)
    return tan(low) * sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| is at most tan(angle) * sqrt(`freedom`), the degrees of freedom."""
    odd = freedom % 2
    term = total = cos(angle) if odd else 1.0
    for number in range(2 + odd, freedom - 1, 2):
        term *= cos(angle) ** 2 * (number - 1) / number
        total += term
    if not odd:
        return sin(angle) * total
    return 2 / pi * (angle + (sin(angle) * total if freedom > 1 else 0.0))


# -- claims ----------------------------------------------------------------------------------------------------------


class Verdict(Enum):
    HOLDS = "holds"
    FLIPS = "flips"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of `approach` is less than `below` times that of `base`; `text` says so.

    It is about trials of this workload and sampling. `figure`: one of those that `measured` compares by name.
    `is_goal`: the project aims at it, and does not claim it yet."""

    text: str
    approach: str
    base: str
    below: float = 1.0
    workload: str = "single"
    sampling: str = "default"
    is_goal: bool = False
    figure: str = "latency"


@dataclass(frozen=True, slots=True)
class NeverInPart:
    """No gang of `approach` is left bound in part, in any workload; one such gang refutes it."""

    text: str
    approach: str
    is_goal: bool = False


def judged(claim: Claim, found: Estimate | None) -> Verdict:
    """The verdict on the ratio: it holds, or flips, only if the whole interval is on that side."""
    if found is None or not (found.above(claim.below) or found.below(claim.below)):
        return Verdict.UNDECIDED
    return Verdict.HOLDS if found.below(claim.below) else Verdict.FLIPS
