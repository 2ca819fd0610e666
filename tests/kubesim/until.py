"""Waiting for something in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from kubesim.apiserver.machinery.store import Store


async def until(
    holds: Callable[[], Any], *, within: float = 60.0, what: str = "what was waited for", every: float = 0.01
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not holds():
        assert loop.time() < deadline, f"{what}: not within {within:g} s"
        await asyncio.sleep(every)


class Looks:
    """Moments so many seconds apart, but for those before which nothing was written: who looks at the store then, and
    at nothing else, sees what it would see at each of them."""

    def __init__(self, store: Store, every: float) -> None:
        self._every = every
        self._began = asyncio.get_running_loop().time()
        self._written = asyncio.Event()
        self._unsubscribe = store.subscribe(lambda change: self._written.set())

    async def next(self) -> None:
        await self._written.wait()
        self._written.clear()
        passed = asyncio.get_running_loop().time() - self._began
        await asyncio.sleep(self._every - passed % self._every)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()
