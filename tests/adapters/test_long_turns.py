"""A turn of the event loop that takes long is told of, by the step that it was at."""

from __future__ import annotations

import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from extender.adapters.long_turns import HELD_UP, LongTurns
from extender.app.admin.leader_election import Ballot, LeaderElection
from extender.core.election import Election, Terms

STEP = "extender.app.admin.leader_election.LeaderElection.leads"
METRIC = "escher_long_turns_total"


class Loop:
    """It turns when it is let."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], object]] = []

    def call_soon_threadsafe(self, turned: Callable[[], object]) -> None:
        self.asked.append(turned)

    def turn(self) -> None:
        self.asked.pop()()


def told_of_a_turn(registry: CollectorRegistry, *, computes: float) -> list[Any]:
    """What is logged of one that is at STEP until somebody has looked. `computes`: for which part of a second."""
    loop, looked = Loop(), threading.Event()
    times, computed = iter([0.0, 1.0]), iter([0.0, computes])

    def frames() -> Mapping[int, FrameType]:
        found = sys._current_frames()
        looked.set()
        return found

    turns = LongTurns(
        cast(AbstractEventLoop, loop),
        registry,
        longest=0.001,
        clock=lambda: next(times),
        cpu=lambda: next(computed),
        frames=frames,
    )
    looking = threading.Thread(target=turns.look)

    def busy() -> float:
        looking.start()
        assert looked.wait(10)
        return 0.0

    with capture_logs() as logs:
        assert not LeaderElection(Election("me", "", Terms.of(4)), cast(Ballot, None), busy).leads
        loop.turn()
        looking.join(10)
    return logs


def test_a_long_turn_is_counted_and_logged_with_its_step() -> None:
    registry = CollectorRegistry()
    [line] = told_of_a_turn(registry, computes=0.9)
    assert (line["step"], line["seconds"], line["log_level"]) == (STEP, 1.0, "warning")
    assert registry.get_sample_value(METRIC, {"step": STEP}) == 1


def test_where_the_process_had_no_processor_no_step_is_at_fault() -> None:
    registry = CollectorRegistry()
    [line] = told_of_a_turn(registry, computes=0.1)
    assert line["step"] == HELD_UP
    assert registry.get_sample_value(METRIC, {"step": HELD_UP}) == 1


def test_a_loop_that_turns_is_not_told_of() -> None:
    class Turning(Loop):
        def call_soon_threadsafe(self, turned: Callable[[], object]) -> None:
            turned()

    with capture_logs() as logs:
        LongTurns(cast(AbstractEventLoop, Turning()), CollectorRegistry()).look()
    assert logs == []


def test_it_watches_until_it_is_closed() -> None:
    class Told(Loop):
        def call_soon_threadsafe(self, turned: Callable[[], object]) -> None:
            turned()
            asked.release()

    asked = threading.Semaphore(0)
    turns = LongTurns(cast(AbstractEventLoop, Told()), CollectorRegistry())
    turns.start()
    for _ in range(3):
        assert asked.acquire(timeout=10)
    turns.close()


def test_the_steps_that_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.adapters.long_turns._MOST_STEPS", 0)
    [line] = told_of_a_turn(CollectorRegistry(), computes=0.9)
    assert line["step"] == "another"
