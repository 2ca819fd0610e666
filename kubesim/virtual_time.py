"""An event loop whose time jumps to the next timer when it has nothing else to do.

Tests therefore never wait. The time and order of events do not depend on other timers: a run with fewer wake-ups gives
the same result.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")

_FEW = 100
"""Fewer timers than this are not worth removing cancelled ones from."""


class _Jumping(selectors.DefaultSelector):
    """Never blocks: it calls `advance` with the timeout that it would have waited."""

    advance: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and len(self.get_map()) <= 1:
            # Only the loop's own wake-up socket is registered, which threads use, and the loop is awake.
            return []
        found = super().select(0)
        if not found and timeout != 0:
            self.advance(timeout)
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time. Timers for the same moment fire in the order of their setting."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self._set = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap of moment, number and timer, cancelled timers included; tuples compare fast."""
        self._sift_at = _FEW
        selector = _Jumping()
        selector.advance = self._advance
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual

    def pass_by(self, seconds: float) -> None:
        """Advances the time by `seconds` of uninterrupted work; no other callback runs."""
        self._virtual += seconds

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._set += 1
        heapq.heappush(self._timers, (when, self._set, timer))
        if len(self._timers) > self._sift_at:
            self._sift()
        return timer

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _sift(self) -> None:
        """Removes cancelled timers from the heap."""
        self._timers = [each for each in self._timers if not each[2].cancelled()]
        heapq.heapify(self._timers)
        self._sift_at = max(_FEW, 2 * len(self._timers))

    def _run_once(self) -> None:
        """One round as in asyncio: due timers join the ready callbacks; new ones wait a round."""
        ready: deque[Any] = self._ready  # type: ignore[attr-defined]
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        seconds = None
        if ready or self._stopping:  # type: ignore[attr-defined]
            seconds = 0.0
        elif self._timers:
            seconds = max(0.0, self._timers[0][0] - self._virtual)
        if found := self._selector.select(seconds):  # type: ignore[attr-defined]
            self._process_events(found)  # type: ignore[attr-defined]
        due = self._virtual + self._clock_resolution  # type: ignore[attr-defined]
        while self._timers and self._timers[0][0] < due:
            ready.append(heapq.heappop(self._timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._turn(handle)

    def _turn(self, handle: asyncio.Handle) -> None:
        handle._run()

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise RuntimeError("nothing will ever happen: all tasks wait, and no timer is set")
        # Time jumps to the exact moment of the next timer. A sum of steps would depend on how often the loop advanced.
        self._virtual = max(self._virtual, self._timers[0][0])


BACKEND: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": VirtualTimeLoop})
