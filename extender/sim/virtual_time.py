"""An event loop whose time jumps to the next timer as soon as nothing else is to be done: tests wait for nothing."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


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


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = 0.0
        selector = _Jumping()
        selector.advance = self._advance
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise RuntimeError("nothing will ever happen: all tasks wait, and no timer is set")
        self._virtual += seconds


BACKEND: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": VirtualTimeLoop})
