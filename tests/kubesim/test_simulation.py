"""A whole cluster in virtual time: what users do, days in seconds, and the same seed gives the same day."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from extender.app.contracts.ports import PodRef
from kubesim.kinds import POD, Json
from kubesim.virtual_time import VirtualTimeLoop
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until


def pods(simulation: Simulation, *prefixes: str) -> dict[str, Json]:
    found = {each["metadata"]["name"]: each for each in simulation.cluster.api.store.list(POD, "default")}
    return {name: each for name, each in found.items() if name.startswith(prefixes or "")}


def bound(simulation: Simulation, prefix: str) -> int:
    return sum(bool(each["spec"].get("nodeName")) for each in pods(simulation, prefix).values())


async def gang(simulation: Simulation, name: str, size: int, cpu: int, run_seconds: float | None = None) -> None:
    for number in range(size):
        await simulation.create(pod(f"{name}-{number}", gang=name, quorum=size, cpu=cpu, run_seconds=run_seconds), POD)


@pytest.mark.anyio
async def test_a_gang_that_fits_is_bound_one_that_does_not_waits_and_is_woken() -> None:
    async with Simulation(nodes=4) as simulation:
        await gang(simulation, "first", 3, cpu=8)
        await gang(simulation, "second", 3, cpu=8)
        await until(lambda: bound(simulation, "first") == 3)
        await asyncio.sleep(5)
        assert bound(simulation, "second") == 0
        for number in range(3):
            await simulation.ask("DELETE", POD.path("default", f"first-{number}"))
        await until(lambda: bound(simulation, "second") == 3)
        assert simulation.application.scheduler.cache.violations() == []


@pytest.mark.anyio
@pytest.mark.parametrize("asleep", [10, 60])
async def test_members_beyond_a_quorum_are_not_woken_by_room_that_is_saved_for_another_gang(asleep: int) -> None:
    """However many sleep: wakes are a write each, and bring a filter call."""
    async with Simulation(nodes=2) as simulation:
        effects, woken = simulation.application.effects, list[str]()
        wake = effects._waker.wake

        async def counted(ref: PodRef, token: str) -> None:
            woken.append(ref.name)
            await wake(ref, token)

        effects._waker.wake = counted  # type: ignore[assignment, method-assign]

        async def elastic(first: int, last: int) -> None:
            for number in range(first, last):
                await simulation.create(pod(f"elastic-{number}", gang="elastic", quorum=2, cpu=1), POD)

        await elastic(0, 4)
        await simulation.create(pod("probe-0", gang="probe", quorum=1, cpu=1), POD)
        await asyncio.sleep(2)
        await gang(simulation, "whole", 2, cpu=8)
        await asyncio.sleep(90)
        saver = simulation.application.scheduler.cache.gangs.waiting.queue.saved.gang
        assert saver is not None
        assert saver.key.name == "whole"
        await elastic(4, 4 + asleep)
        await asyncio.sleep(30)
        for number in range(3):
            await simulation.ask("DELETE", POD.path("default", f"elastic-{number}"))
            await asyncio.sleep(10)
        beyond = [name for name in woken if name.startswith("elastic")]
        assert len(beyond) <= bound(simulation, "elastic")
        assert simulation.application.scheduler.cache.violations() == []


async def a_day(seed: int, *, hours: float = 24.0, gangs_an_hour: int = 8) -> dict[str, Any]:
    """Gangs and ordinary pods come and go all day; what was seen of it."""
    drawn = random.Random(seed)
    async with Simulation(seed=seed, nodes=12) as simulation:
        store, seen = simulation.cluster.api.store, hashlib.sha256()
        store.subscribe(lambda change: seen.update(msgspec.json.encode((change.type, change.object))))
        left = int(hours * gangs_an_hour)
        for number in range(left):
            size, seconds = drawn.choice((2, 4, 8)), drawn.choice((60, 600, 1800))
            await gang(simulation, f"g{number}", size, cpu=drawn.choice((2, 4, 8)), run_seconds=seconds)
            await simulation.create(pod(f"p{number}", run_seconds=drawn.choice((30, 300))), POD)
            await asyncio.sleep(drawn.expovariate(gangs_an_hour / 3600))
            for name, each in pods(simulation).items():
                if each["status"]["phase"] == "Succeeded":
                    await simulation.ask("DELETE", POD.path("default", name))
        await until(
            lambda: not any(each["status"]["phase"] != "Succeeded" for each in pods(simulation).values()),
            within=10 * 3600,
            what="the end of the day's work",
            every=1.0,
        )
        assert simulation.application.scheduler.cache.violations() == []
        return {"digest": seen.hexdigest(), "writes": store.version, "seconds": simulation.clock.now()}


def in_its_own_time(day: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(day)


@pytest.mark.longer
def test_a_day_of_work_is_done_in_seconds_and_everything_runs() -> None:
    began = time.process_time()
    day = in_its_own_time(a_day(3))
    sys.stdout.write(f"{day['writes']} writes in {time.process_time() - began:.1f} s of our time\n")
    assert day["writes"] > 2_000


@pytest.mark.longer
def test_the_same_seed_gives_the_same_hours_and_another_seed_others() -> None:
    first, again, other = (in_its_own_time(a_day(seed, hours=3)) for seed in (5, 5, 6))
    assert first == again
    assert first["digest"] != other["digest"]
