"""Invariants at run time: what does not hold is counted and logged, the first time with what led there; no more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.app.observability.invariant_checker import EVERY, InvariantChecker
from extender.kube.names import CPU, NodeName
from tests.app.fakes import LoopClock
from tests.builders import node, pod
from tests.performing import Performing

pytestmark = pytest.mark.anyio


class Room(Performing):
    def __init__(self) -> None:
        clock = LoopClock()
        self.scheduler = Scheduler(clock)
        self.do(self.scheduler.observe(node()))
        self.flight_recorder = FlightRecorder(clock)
        self.counted = Counter[str]()

    def break_a_total(self) -> None:
        self.scheduler.cache.ledger.rows[NodeName("n1")].held[CPU] = 7


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    task = asyncio.ensure_future(
        InvariantChecker(made.scheduler.cache, made.flight_recorder, lambda name: made.counted.update([name])).run()
    )
    yield made
    assert not task.done(), "the service has ended"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_says_nothing_while_all_holds(room: Room) -> None:
    with capture_logs() as logs:
        await asyncio.sleep(3 * EVERY + 1)
    assert not logs
    assert not room.counted


async def test_counts_what_does_not_hold_each_time_and_tells_the_decisions_before_once(room: Room) -> None:
    room.flight_recorder.note("filter", "default/p", "n1")
    room.break_a_total()
    with capture_logs() as logs:
        await asyncio.sleep(3 * EVERY + 1)
    assert room.counted == {"ledger_totals": 3}
    assert [each["event"] for each in logs] == [
        "an invariant does not hold",
        "the decisions before",
        "an invariant does not hold",
        "an invariant does not hold",
    ]
    assert "n1" in logs[0]["detail"]
    assert "default/p" in str(logs[1]["decisions"])


async def test_a_violation_does_not_keep_the_keeper_from_working(room: Room) -> None:
    room.break_a_total()
    await asyncio.sleep(EVERY + 1)
    assert room.do(room.scheduler.filter(pod(), [NodeName("n1")])).passed == ["n1"]


async def test_a_check_that_fails_is_a_violation_and_ends_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("n1")

    monkeypatch.setattr(room.scheduler.cache, "violations", fails)
    with capture_logs() as logs:
        await asyncio.sleep(EVERY + 1)
        monkeypatch.undo()
        await asyncio.sleep(EVERY)
    assert room.counted == {"audit": 1}
    assert logs[0]["detail"] == "KeyError('n1')"
