"""The harness by itself: a delay that is known shows up as what it is, and no difference as none."""

from __future__ import annotations

from random import Random

import pytest

from lab.compare.reporting.figures import difference
from loadtests.goals.measuring.interleaved import Interleaved
from tests.goals.made import Clock, measured

NOBODYS = (lambda: 0.0), (lambda: 0.0)


@pytest.mark.parametrize("delay", [0.0002, 0.001, 0.005])
def test_a_known_delay_shows_up_as_that_delay(delay: float) -> None:
    pairs = measured(0.001, 0.001, delay, seed=7).passed
    late = difference(pairs.ours, pairs.theirs)
    assert late is not None
    assert late.value == pytest.approx(delay, abs=0.00005)
    assert late.low <= delay <= late.high
    assert pairs.ratio.value == pytest.approx(1 + delay / 0.001, rel=0.05)


def test_who_takes_half_as_long_has_half() -> None:
    found = measured(0.0005, 0.001, seed=3).passed.ratio
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.1
    assert (found.count, found.rounds) == (600, 30)


def test_a_server_against_itself_is_one_in_about_as_many_runs_as_the_interval_says() -> None:
    found = [measured(0.001, 0.001, seed=seed).passed.ratio for seed in range(40)]
    covered = sum(each.low <= 1.0 <= each.high for each in found)
    assert covered >= 36
    assert all(each.value == pytest.approx(1.0, abs=0.05) for each in found)


def test_cpu_time_is_that_of_a_call_however_long_it_waited() -> None:
    spent = measured(0.0005, 0.001, 0.1, seed=3).spent
    assert [value for values in spent.ours.values() for value in values] == pytest.approx([0.0005] * 30)
    assert spent.ratio.value == pytest.approx(0.5)


def test_each_is_asked_the_same_and_each_is_first_half_of_the_time() -> None:
    asked = list[tuple[str, int]]()
    numbers = iter(range(10_000))

    def ours(question: int) -> None:
        asked.append(("ours", question))

    def theirs(question: int) -> None:
        asked.append(("theirs", question))

    both = Interleaved(ours, theirs, clock=Clock().now, spent=NOBODYS, random=Random(1))
    pairs = both.run(lambda: next(numbers), 40, 5).passed
    assert list(pairs.ours) == list(pairs.theirs) == list(range(40))
    assert {len(values) for values in (*pairs.ours.values(), *pairs.theirs.values())} == {5}
    turns = list(zip(asked[::2], asked[1::2], strict=True))
    assert all(first[1] == second[1] and first[0] != second[0] for first, second in turns)
    assert 0.4 < sum(first[0] == "ours" for first, _ in turns) / len(turns) < 0.6


def test_the_warm_up_does_not_count() -> None:
    clock, calls = Clock(), iter(range(10_000))

    def slow_at_first(question: int) -> None:
        clock.time += 100.0 if next(calls) < 10 else 1.0

    both = Interleaved(slow_at_first, slow_at_first, clock=clock.now, spent=NOBODYS, random=Random(1))
    pairs = both.run(lambda: 0, 6, 5).passed
    assert {value for values in (*pairs.ours.values(), *pairs.theirs.values()) for value in values} == {1.0}


def test_what_is_answered_wrongly_ends_the_measurement() -> None:
    def check(ours: int, theirs: int) -> None:
        if ours != theirs:
            raise ValueError("not alike")

    both = Interleaved(
        lambda each: each, lambda each: each + 1, check, clock=Clock().now, spent=NOBODYS, random=Random(1)
    )
    with pytest.raises(ValueError, match="not alike"):
        both.run(lambda: 0, 6, 5)
