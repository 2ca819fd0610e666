"""The alarm rings when the `Scheduler`'s next deadline comes, on nobody's behalf."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from extender.app.effects.timer import Timer
from tests.app.world import World

pytestmark = pytest.mark.anyio
_whose: ContextVar[str] = ContextVar("whose", default="nobody's")


class Scheduler:
    """One deadline, in three seconds, and then none."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.deadline: float | None = cache.clock.steady() + 3.0
        self.ticks: list[str] = []

    def next_deadline(self) -> float | None:
        return self.deadline

    def tick(self) -> None:
        self.deadline = None
        self.ticks.append(_whose.get())


class Nobody:
    def do(self, decided: Any) -> Any:
        return decided


async def test_what_it_rings_for_is_not_of_the_call_in_which_it_was_set() -> None:
    scheduler: Any = Scheduler(World().scheduler.cache)
    before = _whose.set("a call's")
    Timer(scheduler, Nobody()).set()
    await asyncio.sleep(4.0)
    _whose.reset(before)
    assert scheduler.ticks == ["nobody's"]
