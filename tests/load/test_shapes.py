"""How many users there are at a time, by shape."""

from __future__ import annotations

import pytest

from loadtests.load.shapes import SECONDS, SHAPES, STEADY, ramp, seconds_of, soak, spike, tick


def test_a_ramp_adds_users_one_by_one_until_all_are_there() -> None:
    assert [ramp(at, 10, 100) for at in (0, 1, 10, 11, 55, 91, 99.9)] == [1, 1, 1, 2, 6, 10, 10]


def test_a_spike_is_the_third_fifth_of_the_time() -> None:
    assert [spike(at, 50, 100) for at in (0, 39.9, 40, 59.9, 60, 99)] == [5, 5, 50, 50, 5, 5]


def test_a_soak_has_all_users_but_for_its_edges() -> None:
    assert [soak(at, 20, 1000) for at in (0, 25, 50, 500, 950, 975, 999)] == [1, 10, 20, 20, 20, 10, 1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("users", [1, 3, 500])
def test_there_is_always_one_user_and_never_more_than_there_may_be(shape: str, users: int) -> None:
    found = [tick(shape, at / 10, users, 60) for at in range(600)]
    assert all(each is not None and 1 <= each[0] <= users and each[1] > 0 for each in found)
    assert max(each[0] for each in found if each) == users
    assert tick(shape, 60, users, 60) is None


def test_every_shape_has_a_time_it_usually_takes() -> None:
    assert SECONDS.keys() == {STEADY, *SHAPES}


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("20s", 20), ("5m", 300), ("1h30m", 5400), ("2h", 7200)])
def test_durations_are_as_locust_has_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "0s", "1.5m", "5m 3s", "5d"])
def test_what_is_no_duration_is_refused_with_what_was_said(text: str) -> None:
    with pytest.raises(ValueError, match=f"^is '{text}'; write a duration"):
        seconds_of(text)
