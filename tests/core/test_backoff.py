"""Pauses grow while something fails, and begin anew when it has succeeded."""

from __future__ import annotations

from extender.core.common.backoff import BackOff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    back_off = BackOff(1.0, 5.0)
    assert [back_off.failed() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert back_off.failures == 4


def test_who_is_asked_to_wait_longer_does() -> None:
    back_off = BackOff(1.0, 5.0)
    assert [back_off.failed(3.0), back_off.failed(0.5), back_off.failed(60.0)] == [3.0, 2.0, 60.0]


def test_a_success_ends_the_row() -> None:
    back_off = BackOff(1.0, 5.0)
    back_off.failed()
    back_off.failed()
    back_off.succeeded()
    assert (back_off.failures, back_off.failed()) == (0, 1.0)


def test_half_of_each_pause_is_left_to_chance() -> None:
    chances = iter([0.0, 0.5, 1.0])
    back_off = BackOff(1.0, 60.0, lambda: next(chances))
    assert [back_off.failed() for _ in range(3)] == [0.5, 1.5, 4.0]
