"""Reserved: CPU that the service's ledger holds and to which no pod is seen bound yet, sampled from outside.

It is held for gangs: reserved by a plan, assumed for a member that waits at the barrier, or saved for the gang whose
turn it is. An ordinary pod that is just being bound is in it as well, for some milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Protocol

from extender.kube.errors import Unavailable
from extender.kube.names import CPU
from lab.compare.costs import total

_EVERY = 0.25
"""Seconds on average. The moments are drawn, so that none is always just before or after what happens then."""
_NOT_BOUND = ("reserved", "assumed", "saved")


class Telling(Protocol):
    async def metrics(self) -> str: ...


class Reserved:
    def __init__(self) -> None:
        self.samples: list[float] = []
        """Cores."""

    def cpu_seconds(self, seconds: float) -> float | None:
        """Of so many; None if they were too few for a sample, or if it was not told all the time."""
        return sum(self.samples) / len(self.samples) * seconds if self.samples else None

    async def follow(self, service: Telling, random: Random) -> None:
        try:
            while True:
                await asyncio.sleep(random.uniform(0, 2 * _EVERY))
                self.samples.append(held_cpu(await service.metrics()))
        except Unavailable:
            self.samples.clear()


def held_cpu(metrics: str) -> float:
    """In cores, that is held and not bound."""
    found = total(
        metrics,
        "escher_ledger_units",
        lambda of: of.get("resource_class") == CPU and of.get("state") in _NOT_BOUND,
    )
    return (found or 0.0) / 1000


@asynccontextmanager
async def reserving(service: Telling, random: Random) -> AsyncIterator[Reserved]:
    """What is held while the block lasts."""
    found = Reserved()
    following = asyncio.create_task(found.follow(service, random))
    try:
        yield found
    finally:
        following.cancel()
        await asyncio.wait([following])
