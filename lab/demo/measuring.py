"""Measuring: places the same gang by each approach in turns, and returns the rows of a table."""

from __future__ import annotations

import asyncio
import random
import statistics
from dataclasses import dataclass, field
from typing import Any

from lab.demo.approaches import Shown
from lab.demo.jobs import Job
from lab.demo.scenes import SETTLE, Show

_LARGEST = 16


@dataclass
class Measured:
    """One approach, over several gangs that had the cluster to themselves."""

    approach: str
    title: str
    milliseconds: list[float] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


def size_of(show: Show) -> int:
    """The number of members of the measured gangs."""
    return min(_LARGEST, max(2, show.places // 4))


async def measure(show: Show, rounds: int, seed: int) -> list[Measured]:
    """Places the same gang by each approach, alone on the cluster, in an order from the seed."""
    size = size_of(show)
    order = random.Random(seed)
    measured = {way.name: Measured(way.name, way.title) for way in show.ways}
    with show.board.unasked():
        for number in range(rounds + 1):
            for way in order.sample(list(show.ways), len(show.ways)):
                turn = f"round {number} of {rounds}" if number else "to warm up"
                with show.stage.waiting(f"a gang of {size} by {way.title}, {turn}"):
                    job, writes = await _once(show, way, size, number)
                if number:
                    measured[way.name].milliseconds.append(job.took * 1000)
                    measured[way.name].writes.append(writes)
    return list(measured.values())


async def _once(show: Show, way: Shown, size: int, number: int) -> tuple[Job, int]:
    outside = show.outside
    before = await outside.writes()
    job = outside.expect(f"{way.name}-{number}", way.name, size)
    await way.submit(job)
    await outside.until(lambda: job.complete, f"{job.name} being placed")
    await outside.until(lambda: outside.running(job.name) == size, f"{job.name} running")
    await way.end(job)
    await asyncio.sleep(SETTLE)
    return job, await outside.writes() - before


def verdict(show: Show, measured: list[Measured]) -> list[dict[str, Any]]:
    """Figures per approach, for the table and for JSON."""
    base = next((statistics.median(each.milliseconds) for each in measured if each.approach == "plain"), 0.0)
    rows = []
    for each in measured:
        jobs = [job for job in show.outside.jobs if job.approach == each.approach]
        median = statistics.median(each.milliseconds)
        rows.append(
            {
                "approach": each.approach,
                "title": each.title,
                "rounds": len(each.milliseconds),
                "median_ms": round(median, 1),
                "ratio_to_plain": round(median / base, 2) if base else None,
                "writes_per_gang": statistics.mean(each.writes),
                "gangs": len(jobs),
                "partial_gangs": sum(job.was_partial for job in jobs),
                "longest_partly_bound_ms": round(1000 * max(job.partly_for for job in jobs), 1),
            }
        )
    return rows
