"""Whether something grew, by its samples: what grows is found, what does not is not, and what cannot be said is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from loadtests.load.results.flat import LEAST_BLOCKS, Point, Tolerance, Trend, Verdict, judged, trend

TOLERANCE = Tolerance(0.02, 2.0)


def sampled(
    value: Callable[[float], float], *, noise: float = 0.0, seed: int = 1, every: float = 5.0, until: float = 1000.0
) -> list[Point]:
    rng = random.Random(seed)
    return [(at * every, value(at * every) + rng.gauss(0, noise)) for at in range(int(until / every))]


def found(points: list[Point], since: float = 0.0, until: float = 1000.0) -> Trend:
    answer = trend(points, since, until)
    assert answer is not None
    return answer


def test_a_line_without_noise_is_found_as_it_is() -> None:
    of = found(sampled(lambda at: 50 + at / 100))
    assert (of.change, of.low, of.high) == pytest.approx((10, 10, 10))
    (since, before), (until, after) = of.line
    assert (since, before, until, after) == pytest.approx((0, 50, 1000, 60))
    assert judged(of, TOLERANCE) is Verdict.GREW


def test_only_the_time_that_is_judged_counts() -> None:
    points = sampled(lambda at: 500 - at if at < 300 else 200.0)
    assert found(points, 300).change == 0
    assert judged(found(points, 300), TOLERANCE) is Verdict.FLAT


def test_a_leak_that_was_put_in_is_found_under_noise_and_outliers() -> None:
    rng = random.Random(7)
    leaking = [
        (at, value + (80 if rng.random() < 0.1 else 0)) for at, value in sampled(lambda at: 100 + at * 0.006, noise=1.5)
    ]
    of = found(leaking)
    assert of.low < 6 < of.high
    assert judged(of, TOLERANCE) is Verdict.GREW
    without = [(at, value - at * 0.006) for at, value in leaking]
    assert judged(found(without), TOLERANCE) is Verdict.FLAT


def test_a_leak_that_is_smaller_than_the_noise_can_tell_is_undecided() -> None:
    assert judged(found(sampled(lambda at: 100 + at * 0.003, noise=20)), TOLERANCE) is Verdict.UNDECIDED


def test_the_interval_has_the_true_change_about_as_often_as_it_says() -> None:
    runs = [found(sampled(lambda at: 100.0, noise=3, seed=seed)) for seed in range(100)]
    assert 88 <= sum(of.low <= 0 <= of.high for of in runs) <= 100


def test_so_it_has_where_samples_that_follow_each_other_are_alike() -> None:
    # Luck that lasts for half a minute.
    def lucky(seed: int) -> list[Point]:
        rng, luck, points = random.Random(seed), 0.0, []
        for number in range(200):
            luck = 0.85 * luck + rng.gauss(0, 1)
            points.append((number * 5.0, 100 + luck))
        return points

    assert sum(of.low <= 0 <= of.high for of in map(found, map(lucky, range(100)))) >= 90


def test_what_falls_is_worse_only_where_falling_is() -> None:
    of = found(sampled(lambda at: 200 - at / 20, noise=1))
    assert judged(of, Tolerance(0.05, 0.0, falling=True)) is Verdict.FELL
    assert judged(of, Tolerance(0.05, 0.0)) is Verdict.FLAT
    assert judged(found(sampled(lambda at: 100 + at)), Tolerance(0.05, 0.0, falling=True)) is Verdict.FLAT


def test_a_tolerance_is_a_share_or_what_is_always_tolerated() -> None:
    assert [TOLERANCE.of(before) for before in (50, 100, 1000)] == [2, 2, 20]


def test_of_too_few_samples_nothing_is_said() -> None:
    assert trend([], 0, 1000) is None
    few = [(number * 1000 / 16, 1.0 + number) for number in range(LEAST_BLOCKS)]
    assert trend(few[1:], 0, 1000) is None
    assert trend(few, 0, 1000) is not None
    assert judged(None, TOLERANCE) is Verdict.UNDECIDED


def test_what_is_infinite_is_left_out() -> None:
    points = [(at, math.inf if at % 50 == 0 else value) for at, value in sampled(lambda at: 7.0)]
    assert (found(points).before, found(points).change) == (7, 0)


def test_the_same_samples_give_the_same_interval() -> None:
    points = sampled(lambda at: 1.0, noise=1)
    assert found(points) == found(points)
