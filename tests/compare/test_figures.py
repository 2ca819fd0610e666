"""Figures: known samples have known figures, and intervals cover what they say."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.compare.reporting.figures import (
    LEVEL,
    MEDIAN,
    P90,
    P99,
    ROUNDS,
    Claim,
    Estimate,
    Sample,
    Statistic,
    Verdict,
    difference,
    estimate,
    judged,
    mean,
    quantile,
    ratio,
    students_t,
)

SECONDS = st.one_of(st.floats(0.001, 100), st.just(inf))
SAMPLES = st.dictionaries(st.integers(0, 30), st.lists(SECONDS, min_size=1, max_size=4), min_size=1, max_size=12)


def rounds(*values: float) -> Sample:
    return {number: [value] for number, value in enumerate(values)}


def latencies(chance: np.random.Generator, count: int, scale: float = 1.0, more: float = 0.0) -> Sample:
    """As latencies are: skewed to the right, with a median of `scale` and what is added."""
    return rounds(*(scale * chance.lognormal(0, 0.2, count) + more))


@given(SAMPLES, st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_those_of_numpy_wherever_all_is_finite(sample: Sample, share: float) -> None:
    values = [value for each in sample.values() for value in each if value < inf]
    if values:
        found = estimate({0: values}, quantile(share))
        assert found is not None
        assert found.value == pytest.approx(np.quantile(values, share))
        assert found.count == len(values)


def test_what_never_came_is_infinitely_late_and_does_not_vanish() -> None:
    sample = rounds(1.0, 2.0, 3.0, inf, inf)
    median, late = estimate(sample), estimate(sample, P90)
    assert median is not None
    assert late is not None
    assert (median.value, median.count, late.value) == (3.0, 5, inf)
    assert median.high == inf
    most = estimate(rounds(1.0, inf, inf))
    assert most is not None
    assert most.value == inf


def test_of_an_even_number_with_half_of_them_infinite_the_median_is_infinite() -> None:
    found = estimate(rounds(1.0, inf))
    assert found is not None
    assert (found.value, found.low, found.high) == (inf, 1.0, inf)


def test_of_nothing_there_is_no_figure() -> None:
    assert estimate({}) is None
    assert estimate({3: []}) is None
    assert ratio(rounds(1.0), {7: [1.0]}) is None


@given(SAMPLES)
def test_the_base_against_itself_is_one_without_any_doubt(sample: Sample) -> None:
    found = ratio(sample, sample)
    assert found is not None
    if isnan(found.value):
        return
    assert found.value == 1.0
    assert found.low <= 1.0 <= found.high
    if all(value < inf for each in sample.values() for value in each):
        assert (found.low, found.high) == (1.0, 1.0)


@given(SAMPLES, st.sampled_from([MEDIAN, P90, P99, mean]))
def test_the_same_samples_give_the_same_figures_in_whatever_order_they_are_told(
    sample: Sample, statistic: Statistic
) -> None:
    backwards = {number: list(reversed(sample[number])) for number in sorted(sample, reverse=True)}
    first, again = estimate(sample, statistic), estimate(backwards, statistic)
    assert first is not None
    assert again is not None
    assert first.value == pytest.approx(again.value)
    assert (first.low, first.high) == pytest.approx((again.low, again.high))


@given(SAMPLES)
@settings(max_examples=30)
def test_an_interval_has_its_figure_within(sample: Sample) -> None:
    found = estimate(sample)
    assert found is not None
    values = [value for each in sample.values() for value in each]
    assert min(values) <= found.low <= found.high <= max(values)


def share_covered(true: float, seeds: int, made: Callable[[np.random.Generator], Estimate | None]) -> float:
    chance = np.random.default_rng(5)
    found = [made(chance) for _ in range(seeds)]
    return sum(each is not None and each.low <= true <= each.high for each in found) / seeds


@pytest.mark.parametrize("count", [11, 15, 40])
def test_intervals_of_the_median_cover_the_true_one_about_as_often_as_they_say(count: int) -> None:
    covered = share_covered(1.0, 200, lambda chance: estimate(latencies(chance, count)))
    assert LEVEL - 0.05 < covered <= 1.0


@pytest.mark.parametrize("count", [11, 15, 40])
def test_intervals_of_a_ratio_cover_the_true_one_about_as_often_as_they_say(count: int) -> None:
    def made(chance: np.random.Generator) -> Estimate | None:
        return ratio(latencies(chance, count, 1.4), latencies(chance, count))

    assert LEVEL - 0.05 < share_covered(1.4, 200, made) <= 1.0


@pytest.mark.parametrize("count", [6, 8, 15])
def test_intervals_of_the_mean_cover_the_true_one_about_as_often_as_they_say_however_few_rounds(count: int) -> None:
    true = float(np.exp(0.2**2 / 2))
    covered = share_covered(true, 400, lambda chance: estimate(latencies(chance, count), mean))
    assert LEVEL - 0.04 < covered <= 1.0


@pytest.mark.parametrize("count", [6, 8, 15])
def test_intervals_of_a_ratio_of_means_cover_the_true_one_about_as_often_as_they_say(count: int) -> None:
    def made(chance: np.random.Generator) -> Estimate | None:
        return ratio(latencies(chance, count, 1.4), latencies(chance, count), mean)

    assert LEVEL - 0.04 < share_covered(1.4, 400, made) <= 1.0


def test_of_one_round_the_mean_has_no_interval_but_itself() -> None:
    found = estimate({3: [1.0, 3.0]}, mean)
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("freedom", "inner95", "inner99"),
    [(1, 12.706, 63.657), (2, 4.303, 9.925), (5, 2.571, 4.032), (7, 2.365, 3.499), (14, 2.145, 2.977), (60, 2.0, 2.66)],
)
def test_quantiles_of_students_t_are_those_of_the_textbooks(freedom: int, inner95: float, inner99: float) -> None:
    assert students_t(0.95, freedom) == pytest.approx(inner95, abs=6e-4)
    assert students_t(0.99, freedom) == pytest.approx(inner99, abs=6e-4)


def test_the_same_measured_twice_gives_1_within_the_interval_about_as_often_as_it_says() -> None:
    def made(chance: np.random.Generator) -> Estimate | None:
        return ratio(latencies(chance, 15), latencies(chance, 15))

    assert LEVEL - 0.05 < share_covered(1.0, 200, made) <= 1.0


def test_gangs_of_one_trial_share_its_luck_and_intervals_know_it() -> None:
    def made(chance: np.random.Generator) -> Estimate | None:
        luck = chance.normal(0, 1, 20)
        return estimate({n: list(luck[n] + chance.normal(0, 0.1, 10)) for n in range(20)})

    assert LEVEL - 0.08 < share_covered(0.0, 200, made) <= 1.0


@given(st.floats(0.05, 5.0), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_a_known_delay_that_is_added_comes_out_as_that_delay(delay: float, seed: int) -> None:
    chance = np.random.default_rng(seed)
    base = latencies(chance, 25)
    slower = {number: [value + delay for value in values] for number, values in base.items()}
    found, twice = difference(slower, base), ratio(slower, base)
    assert found is not None
    assert twice is not None
    assert (found.value, found.low, found.high) == pytest.approx((delay, delay, delay))
    assert twice.low > 1.0


def test_a_known_delay_comes_out_of_what_was_measured_apart_as_well() -> None:
    def made(chance: np.random.Generator) -> Estimate | None:
        return difference(latencies(chance, 25, 1.0, 0.3), latencies(chance, 25))

    assert LEVEL - 0.05 < share_covered(0.3, 200, made) <= 1.0


def test_what_changes_from_round_to_round_for_all_alike_is_not_in_the_ratio() -> None:
    chance = np.random.default_rng(3)
    slowness = chance.lognormal(0, 1.0, 15)
    base = rounds(*slowness)
    apart, together = estimate(base), ratio(rounds(*(2 * slowness)), base)
    assert apart is not None
    assert together is not None
    assert apart.high / apart.low > 1.5
    assert (together.low, together.high) == pytest.approx((2.0, 2.0))


def test_both_infinite_is_no_ratio_and_decides_nothing() -> None:
    never = rounds(*[inf] * 8)
    found = ratio(never, never)
    assert found is not None
    assert isnan(found.value)
    assert (found.low, found.high) == (0.0, inf)
    assert judged(Claim("a", "x", "y"), found) is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("low", "high", "below", "verdict"),
    [
        (0.7, 0.9, 1.0, Verdict.HOLDS),
        (0.7, 0.9, 0.8, Verdict.UNDECIDED),
        (0.7, 0.9, 0.6, Verdict.FLIPS),
        (0.9, 1.1, 1.0, Verdict.UNDECIDED),
        (1.0, 1.0, 1.0, Verdict.UNDECIDED),
        (1.1, inf, 1.0, Verdict.FLIPS),
    ],
)
def test_a_claim_holds_or_flips_only_beyond_its_interval(
    low: float, high: float, below: float, verdict: Verdict
) -> None:
    claim = Claim("sooner", "extender", "native", below)
    assert judged(claim, Estimate((low + high) / 2, low, high, 15, 15)) is verdict
    assert judged(claim, Estimate((low + high) / 2, low, high, 15, ROUNDS - 1)) is Verdict.UNDECIDED


def test_what_was_not_measured_is_undecided() -> None:
    assert judged(Claim("sooner", "extender", "native"), None) is Verdict.UNDECIDED


def test_slower_is_told_as_flipped_and_quicker_as_holding() -> None:
    chance = np.random.default_rng(1)
    quick, slow = latencies(chance, 15), latencies(chance, 15, 1.5)
    claim = Claim("sooner", "extender", "native")
    assert judged(claim, ratio(quick, slow)) is Verdict.HOLDS
    assert judged(claim, ratio(slow, quick)) is Verdict.FLIPS
