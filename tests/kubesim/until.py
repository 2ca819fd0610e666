"""Waiting for something in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until(
    holds: Callable[[], Any], *, within: float = 60.0, what: str = "what was waited for", every: float = 0.01
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not holds():
        assert loop.time() < deadline, f"{what}: not within {within:g} s"
        await asyncio.sleep(every)
