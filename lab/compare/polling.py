"""Polling: for what nobody tells, and is asked for again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lab.controlplane.witness import Late


async def until(holds: Callable[[], Awaitable[bool]], what: Callable[[], str], *, within: float, every: float) -> None:
    """Asked every so many seconds. Raises Late, with `what` is missing then, if it does not hold within so many."""
    deadline = asyncio.get_running_loop().time() + within
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise Late(what())
        await asyncio.sleep(every)
