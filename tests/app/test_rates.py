"""Rates: so many calls at once, so many a second, for each client alone."""

from __future__ import annotations

import pytest

from extender.app.cache.rates import Rates


def test_a_burst_is_taken_at_once_and_then_it_goes_at_the_rate() -> None:
    rates = Rates(per_second=2.0, burst=3)
    assert [rates.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rates.take("a", 0.25) == pytest.approx(0.25)
    assert rates.take("a", 0.5) == 0.0
    assert rates.take("a", 0.5) == pytest.approx(0.5)


def test_who_was_quiet_has_no_more_than_a_burst() -> None:
    rates = Rates(per_second=2.0, burst=3)
    assert [rates.take("a", 1000.0) == 0.0 for _ in range(5)] == [True] * 3 + [False] * 2


def test_one_client_takes_nothing_from_another() -> None:
    rates = Rates(per_second=1.0, burst=1)
    assert rates.take("a", 0.0) == 0.0
    assert rates.take("a", 0.0) > 0
    assert rates.take("b", 0.0) == 0.0


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    rates = Rates(per_second=1.0, burst=1)
    assert rates.take("a", 10.0) == 0.0
    assert rates.take("a", 5.0) == 1.0


def test_any_number_of_clients_is_remembered_in_bounded_memory() -> None:
    rates = Rates(per_second=1.0, burst=1)
    for number in range(50_000):
        assert rates.take(number, 0.0) == 0.0
    assert len(rates._left) <= 8192
