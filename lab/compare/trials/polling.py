"""Polling: waits for a state that no watch reports, by repeated requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lab.controlplane.witness import Late


async def until(holds: Callable[[], Awaitable[bool]], what: Callable[[], str], *, within: float, every: float) -> None:
    """Checks every `every` s. Raises Late with `what()` if it does not hold within `within` s."""
    deadline = asyncio.get_running_loop().time() + within
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise Late(what())
        await asyncio.sleep(every)
