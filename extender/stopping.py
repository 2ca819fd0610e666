"""Stopping: handles SIGTERM and SIGINT, which ask the process to end."""

from __future__ import annotations

import asyncio
from signal import SIGINT, SIGTERM, Signals
from types import TracebackType
from typing import Self

_HEEDED = (SIGTERM, SIGINT)


class Asked:
    """In the block, the first signal asks for the end; a further one asks not to wait.

    Enter it in the running event loop of the main thread.
    """

    def __init__(self) -> None:
        self.by: Signals | None = None
        """The first signal."""
        self._first, self._second = asyncio.Event(), asyncio.Event()

    async def to_end(self) -> None:
        await self._first.wait()

    async def to_hurry(self) -> None:
        await self._second.wait()

    def __enter__(self) -> Self:
        for each in _HEEDED:
            asyncio.get_running_loop().add_signal_handler(each, self._hear, each)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in _HEEDED:
            asyncio.get_running_loop().remove_signal_handler(each)

    def _hear(self, signal: Signals) -> None:
        if self.by is None:
            self.by = signal
            self._first.set()
        else:
            self._second.set()
