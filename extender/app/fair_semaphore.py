"""A semaphore that namespaces share; they take turns while more wait than may hold it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from extender.core.tenancy.shares import Turns


class FairSemaphore:
    """`at_once`: how many may hold it at the same time. `each`: how many of one namespace.

    With `each`, a namespace whose holders take long leaves something to the others. It holds at most one more than it
    leaves free, or a few such namespaces would have all."""

    def __init__(self, at_once: float = inf, each: float = inf) -> None:
        self._free = at_once
        self._each = each
        self._held: Counter[str] = Counter()
        self._waiting: Turns[asyncio.Future[None]] = Turns()

    @asynccontextmanager
    async def held(self, namespace: str) -> AsyncIterator[None]:
        """The namespace holds it while the block lasts."""
        await self.acquire(namespace)
        try:
            yield
        finally:
            self.release(namespace)

    @asynccontextmanager
    async def lent(self, namespace: str) -> AsyncIterator[None]:
        """The namespace, which holds it, lends it to others while the block lasts."""
        self.release(namespace)
        try:
            yield
        finally:
            await self.acquire(namespace)

    async def acquire(self, namespace: str) -> None:
        # If something is free, the waiting tasks are of namespaces that hold as much as they may.
        if self._free > 0 and self._may(namespace):
            self._hold(namespace)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(namespace, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release(namespace)
            raise

    def release(self, namespace: str) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        while self._free > 0 and (found := self._waiting.take(self._may)) is not None:
            of, turn = found
            if not turn.done():
                self._hold(of)
                turn.set_result(None)

    def _may(self, namespace: str) -> bool:
        return self._each == inf or self._held[namespace] < min(self._each, self._free)

    def _hold(self, namespace: str) -> None:
        self._free -= 1
        self._held[namespace] += 1
