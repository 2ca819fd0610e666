"""Reserved: CPU that the service's ledger holds without a bound pod, sampled from outside.

It is held for gangs: reserved by a plan, assumed for a member at the barrier, or kept by the backfill reservation. It
includes an ordinary pod that is being bound, for some milliseconds.
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
"""Mean seconds between samples; random, so that none follows a rhythm of the cluster."""
_NOT_BOUND = ("reserved", "assumed", "saved")


class Telling(Protocol):
    async def metrics(self) -> str: ...


class Reserved:
    def __init__(self) -> None:
        self.samples: list[float] = []
        """Cores."""

    def cpu_seconds(self, seconds: float) -> float | None:
        """CPU-seconds in `seconds`; None without samples, or if the service failed to report."""
        return sum(self.samples) / len(self.samples) * seconds if self.samples else None

    async def follow(self, service: Telling, random: Random) -> None:
        try:
            while True:
                await asyncio.sleep(random.uniform(0, 2 * _EVERY))
                self.samples.append(held_cpu(await service.metrics()))
        except Unavailable:
            self.samples.clear()


def held_cpu(metrics: str) -> float:
    """CPU that is held and not bound, in cores."""
    found = total(
        metrics,
        "escher_ledger_units",
        lambda of: of.get("resource_class") == CPU and of.get("state") in _NOT_BOUND,
    )
    return (found or 0.0) / 1000


@asynccontextmanager
async def reserving(service: Telling, random: Random) -> AsyncIterator[Reserved]:
    """Samples the held CPU during the block."""
    found = Reserved()
    following = asyncio.create_task(found.follow(service, random))
    try:
        yield found
    finally:
        following.cancel()
        await asyncio.wait([following])
