"""ESLs that share a loop take a fifth of it together, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

from extender.esl.base import Effect, Event, NodeSeen
from extender.esl.policies.queue import Queue
from extender.esl.runtime.policy_loop import Pace, PolicyLoop
from extender.esl.runtime.several import Several
from tests.builders import node

SECONDS = 0.004


class Slow(Queue):
    """Thinks for long, and notes when it began."""

    began: list[float]

    def handle_all(self, events: Iterable[Event], now: float) -> list[Effect]:
        loop = asyncio.get_running_loop()
        self.began.append(loop.time())
        while loop.time() < self.began[-1] + SECONDS:
            pass
        return []


def test_of_many_who_are_told_at_once_each_thinks_when_others_have_had_their_turn() -> None:
    began = list[float]()

    async def told() -> None:
        pace, works = Pace(), list[PolicyLoop]()
        for number in range(4):
            slow = Slow(f"q{number}", capacity=1)
            slow.began = began
            works.append(PolicyLoop(Several([slow], "default"), lambda effect: None, pace=pace))
            works[-1].begin()
        for work in works:
            work.put(NodeSeen(node("n1")))
        for work in works:
            # Set when it has been told.
            await asyncio.wait_for(work.changed.wait(), 30)
        for work in works:
            await work.end()

    asyncio.run(told())
    assert len(began) == 4
    assert all(later - before >= 5 * SECONDS for before, later in pairwise(began))
