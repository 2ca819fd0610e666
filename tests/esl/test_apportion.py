"""Apportionment, against its definition."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from extender.esl.policies.apportion import apportion, apportion_at_most

WEIGHTS = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 50), min_size=1)


@given(whole=st.integers(0, 500), weights=WEIGHTS)
def test_parts_add_up_and_none_is_off_its_quota_by_one(whole: int, weights: dict[str, int]) -> None:
    parts = apportion(whole, weights)
    assert sum(parts.values()) == whole
    for name, weight in weights.items():
        quota = Fraction(whole * weight, sum(weights.values()))
        assert abs(parts[name] - quota) < 1
        for other in weights:
            theirs = Fraction(whole * weights[other], sum(weights.values()))
            if parts[name] > quota and parts[other] < theirs:
                assert quota % 1 >= theirs % 1, "the larger remainder has the part"


@given(
    whole=st.integers(0, 500), weights=WEIGHTS, demands=st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 200))
)
def test_nobody_has_more_than_it_demands_and_nothing_is_left_while_somebody_demands_more(
    whole: int, weights: dict[str, int], demands: dict[str, int]
) -> None:
    parts = apportion_at_most(whole, weights, demands)
    assert all(parts[name] <= demands.get(name, 0) for name in weights)
    assert sum(parts.values()) == min(whole, sum(demands.get(name, 0) for name in weights))


@given(whole=st.integers(0, 500), weights=WEIGHTS)
def test_where_all_demand_everything_demands_make_no_difference(whole: int, weights: dict[str, int]) -> None:
    assert apportion_at_most(whole, weights, dict.fromkeys(weights, whole + 1)) == apportion(whole, weights)


@given(
    whole=st.integers(0, 300), weights=WEIGHTS, demands=st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 99))
)
def test_who_is_left_wanting_has_at_least_its_quota_of_the_whole_rounded_down(
    whole: int, weights: dict[str, int], demands: dict[str, int]
) -> None:
    parts = apportion_at_most(whole, weights, demands)
    for name, weight in weights.items():
        if parts[name] < demands.get(name, 0):
            assert parts[name] >= whole * weight // sum(weights.values())
