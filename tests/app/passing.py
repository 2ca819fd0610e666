"""Time that passes in a town, until something holds there."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized


class Passing(ABC):
    def __init__(self) -> None:
        self._changed = asyncio.Event()

    @abstractmethod
    def bound(self, gang: str = "train") -> Sized:
        """The gang's members that are bound."""

    def has_changed(self) -> None:
        """Something at the API server has."""
        self._changed.set()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, holds: Callable[[], bool], *, within: float = 120.0) -> None:
        """It holds, right after some change at the API server."""
        async with asyncio.timeout(within):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def until_bound(self, count: int, gang: str = "train", *, within: float = 120.0) -> None:
        await self.until(lambda: len(self.bound(gang)) == count, within=within)
