"""Locks by name: writes to one object come one after another, those to others at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from extender.app.contracts.kind import Identity


@dataclass(slots=True)
class _Used:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class NameLocks:
    """A lock exists while a task holds it or waits for it. First come, first served."""

    def __init__(self) -> None:
        self._locks: dict[Identity, _Used] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, names: Iterable[Identity]) -> AsyncIterator[None]:
        """The caller holds all of the names while the block lasts."""
        async with AsyncExitStack() as stack:
            # All callers lock in one order, so that no two wait for each other.
            for name in sorted(set(names)):
                used = self._locks.setdefault(name, _Used())
                used.users += 1
                stack.callback(self._leave, name, used)
                await stack.enter_async_context(used.lock)
            yield

    def _leave(self, name: Identity, used: _Used) -> None:
        used.users -= 1
        if not used.users:
            del self._locks[name]
