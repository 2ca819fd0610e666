"""An event loop whose time jumps to the next timer as soon as nothing else is to be done: tests wait for nothing.

When, and in which order, things happen does not depend on who else sets timers meanwhile: the same story may be told
with fewer wake-ups.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import selectors
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")


class _Jumping(selectors.DefaultSelector):
    """Never blocks: instead `advance` is told for how long it would have."""

    advance: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and len(self.get_map()) <= 1:
            # There is nothing but the loop's own line, by which threads wake it; it is awake.
            return []
        found = super().select(0)
        if not found and timeout != 0:
            self.advance(timeout)
        return found


class _Timer(asyncio.TimerHandle):
    """Of timers for the same moment the one that was set first goes off first, whatever others there were."""

    __slots__ = ("_number",)
    _number: int

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        when, others = self.when(), other.when()
        return when < others or (when == others and isinstance(other, _Timer) and self._number < other._number)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = 0.0
        self._set = 0
        selector = _Jumping()
        selector.advance = self._advance
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer._number = self._set = self._set + 1
        heapq.heappush(self._timers, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        return self._scheduled  # type: ignore[attr-defined,no-any-return]

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise RuntimeError("nothing will ever happen: all tasks wait, and no timer is set")
        # To the very moment of the next timer: a sum of steps would be another by how often anybody looked in between.
        self._virtual = max(self._virtual, self._timers[0].when())


BACKEND: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": VirtualTimeLoop})
