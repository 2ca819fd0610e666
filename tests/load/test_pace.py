"""Turns are as far apart as the rate says, whoever asks for them."""

from __future__ import annotations

import pytest

from loadtests.load.pace import Pace


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def pace(rate: float, time: Time) -> Pace:
    return Pace(rate, now=lambda: time.now, sleep=time.sleep)


def test_many_who_ask_at_once_are_served_at_the_rate() -> None:
    time = Time()
    paced = pace(200, time)
    for _ in range(401):
        paced.turn()
    assert time.now == pytest.approx(102.0)


def test_those_who_wait_beside_each_other_have_turns_of_their_own() -> None:
    waited: list[float] = []
    paced = Pace(10, now=lambda: 5.0, sleep=waited.append)
    for _ in range(4):
        paced.turn()
    assert waited == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_who_comes_late_waits_for_nothing_and_makes_up_for_nothing() -> None:
    time = Time()
    paced = pace(10, time)
    paced.turn()
    time.now += 60
    paced.turn()
    assert time.now == 160.0
    paced.turn()
    assert time.now == pytest.approx(160.1)


def test_without_a_rate_nobody_waits() -> None:
    waited: list[float] = []
    Pace(0, now=lambda: 5.0, sleep=waited.append).turn()
    assert waited == []
