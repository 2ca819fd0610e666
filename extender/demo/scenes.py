"""The scenes: each does something to the cluster, watches from outside what came of it, and says so.

A scene that does not come out as promised is reported and fails the demonstration; the next one is played all the same.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.adapters.kube.connection import Connection
from extender.app.ports import Refused, Unavailable
from extender.core.names import DOMAIN
from extender.demo.approaches import Manifest, Plain, Way, create, manifest, members, remove
from extender.demo.outside import NAMESPACE, PARTLY_AFTER, Job, Late, Outside
from extender.demo.service import Service, ServiceTrouble
from extender.demo.stage import Stage
from extender.esl import Approach

CPU, SLOTS = "4", 2
"""What each member asks for, and how many fit on a node."""
_SETTLE = 0.2
"""Seconds for everybody's watches to catch up with an empty cluster, the same for every approach."""


class NotAsPromised(Exception):
    """The scene came out otherwise than it should; `str()` says how."""


@dataclass
class Measured:
    """One approach, over several gangs that had the cluster to themselves."""

    approach: str
    title: str
    milliseconds: list[float] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


@dataclass
class Show:
    """What the scenes have in common."""

    connection: Connection
    outside: Outside
    service: Service
    stage: Stage
    ways: Sequence[Way]
    nodes: int
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def node_names(self) -> list[str]:
        return [f"node-{number}" for number in range(self.nodes)]

    @property
    def places(self) -> int:
        return self.nodes * SLOTS

    async def play(self, name: str, title: str, scene: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """The scene has been played, and its result noted."""
        self.stage.scene(title)
        began = time.monotonic()
        result: dict[str, Any] = {"name": name, "passed": True}
        try:
            result |= await scene()
        except (NotAsPromised, Late, ServiceTrouble, Unavailable, Refused) as error:
            result |= {"passed": False, "problem": str(error)}
            self.stage.bad(str(error))
            await self._clear()
        await asyncio.sleep(_SETTLE)
        self.results.append(result | {"seconds": round(time.monotonic() - began, 3)})

    async def _clear(self) -> None:
        """Nothing of a scene that went wrong is left, as far as can be."""
        try:
            for way in self.ways:
                for job in [job for job in self.outside.open_jobs() if job.approach == way.name]:
                    await way.end(job)
            await remove(self.connection, self.outside, self.outside.names())
        except (Late, Unavailable, Refused) as error:
            self.stage.bad(f"could not clean up: {error}")

    def show(self, letters: dict[str, str]) -> None:
        self.stage.map(self.outside.by_node(), self.node_names, SLOTS, letters)


async def late_resource(show: Show) -> dict[str, Any]:
    """A resource is asked for by pods of both approaches before anybody has created it."""
    stage, outside = show.stage, show.outside
    key, node = f"{DOMAIN}/{NAMESPACE}.data1", show.node_names[-1]
    readers = {"reader-extender": Approach.EXTENDER, "reader-resources": Approach.EXTENDED_RESOURCES}
    stage.say(f"Two pods ask for {key}: 1. Nobody has created it, so both wait.")
    await create(show.connection, [_reader(name, approach, key) for name, approach in readers.items()])
    with stage.waiting("kube-scheduler tries"):
        await outside.until(lambda: all(map(outside.turned_away, readers)), "both readers waiting")
    stage.command(f"curl {show.service.explain_url('pods', 'reader-extender')}")
    stage.explanation(await show.service.explain("pods", "reader-extender"))
    stage.say(f"An application stores its data on {node}, and says so:")
    body = f'{{"capacity": 2, "node_spec": "{node}"}}'
    stage.command(f"curl -X PUT {show.service.resource_url('data1')} --json '{body}'")
    began = time.monotonic()
    bound: dict[str, float] = {}

    def both_bound() -> bool:
        for name in readers:
            if outside.node_of(name):
                bound.setdefault(name, time.monotonic() - began)
        return len(bound) == len(readers)

    await show.service.set_resource("data1", 2, node)
    with stage.waiting("the readers are placed"):
        await outside.until(both_bound, f"both readers bound to {node}")
    where = {name: outside.node_of(name) for name in readers}
    if set(where.values()) != {node}:
        raise NotAsPromised(f"the readers are on {where}, and only {node} has the resource")
    told = {approach.value: bound[name] * 1000 for name, approach in readers.items()}
    stage.good(f"Both run on {node}, " + ", ".join(f"{name} after {took:.0f} ms" for name, took in told.items()) + ".")
    await remove(show.connection, outside, list(readers))
    await show.service.delete_resource("data1")
    return {"node": node, "bound_after_ms": {name: round(took, 1) for name, took in told.items()}}


def _reader(name: str, approach: Approach, key: str) -> Manifest:
    pod = manifest(Job("readers", approach.value, 1), 0)
    pod["metadata"]["name"] = name
    pod["spec"]["schedulerName"] = approach.value
    pod["spec"]["containers"][0]["resources"] = {"limits": {key: "1"}}
    return pod


async def contention(show: Show, way: Way) -> dict[str, Any]:
    """Two jobs want the cluster at the same time, and only one fits."""
    stage, outside = show.stage, show.outside
    size = show.places * 3 // 4
    jobs = [outside.expect(f"{way.name}-{letter}", way.name, size) for letter in "ab"]
    letters = {job.name: letter for job, letter in zip(jobs, "AB", strict=True)}
    if isinstance(way, Plain):
        await way.submit_in_turns(jobs, CPU)
        return await _stuck(show, way, jobs, letters)
    await asyncio.gather(*(way.submit(job, CPU) for job in jobs))
    with stage.waiting("one of the two is placed"):
        await outside.until(lambda: any(job.complete for job in jobs), "one of the two gangs being placed")
    first, second = sorted(jobs, key=lambda job: job.bound, reverse=True)
    # Long enough to see that nothing more happens.
    await asyncio.sleep(PARTLY_AFTER * 1.2)
    if second.bound:
        raise NotAsPromised(f"{second.bound} of {size} members of {second.name} are bound, and the others do not fit")
    placed = f"{letters[first.name]} is placed, {size} of {size}, after {first.took * 1000:.0f} ms."
    if held := outside.ghosts(second.name):
        show.show(letters)
        stage.say(f"{placed} {letters[second.name]}'s ghosts hold what is left, {held} places, until they time out.")
        with stage.waiting("the ghosts give up"):
            await outside.until(lambda: not outside.ghosts(second.name), f"the end of {second.name}'s ghosts")
        placed = ""
    show.show(letters)
    stage.good(f"{placed} {letters[second.name]} holds nothing and waits its turn.".strip())
    if way.name == "extender":
        stage.say(f"Why does {letters[second.name]} wait?")
        stage.command(f"curl {show.service.explain_url('gangs', second.name)}")
        stage.explanation(await show.service.explain("gangs", second.name))
    before = time.monotonic()
    ending = asyncio.create_task(way.end(first))
    with stage.waiting(f"{letters[first.name]} ends; {letters[second.name]} is placed"):
        await outside.until(lambda: second.complete, f"gang {second.name} being placed when the other has ended")
    await ending
    woken = max(second.bound_at.values()) - before
    show.show(letters)
    stage.good(
        f"{letters[first.name]} ends; {letters[second.name]} is placed, {size} of {size}, {woken * 1000:.0f} ms later."
    )
    await way.end(second)
    return {
        "approach": way.name,
        "gang_size": size,
        "first_placed_after_ms": round(first.took * 1000, 1),
        "second_placed_after_end_of_first_ms": round(woken * 1000, 1),
    }


async def _stuck(show: Show, way: Way, jobs: list[Job], letters: dict[str, str]) -> dict[str, Any]:
    size = jobs[0].size
    with show.stage.waiting("kube-scheduler binds whatever fits"):
        await show.outside.until(lambda: sum(job.bound for job in jobs) == show.places, "a full cluster")
        await asyncio.sleep(PARTLY_AFTER * 1.2)
    show.show(letters)
    bound = {job.name: job.bound for job in jobs}
    said = ", ".join(f"{letters[job.name]} has {job.bound} of {size}" for job in jobs)
    partly = [job for job in jobs if 0 < job.bound < size]
    if len(partly) == len(jobs):
        show.stage.say(f"{said}: neither can begin, and each holds what the other needs.")
    else:
        show.stage.say(f"{said}: whoever is not complete holds room for nothing.")
    for job in jobs:
        await way.end(job)
    return {"approach": way.name, "gang_size": size, "bound": bound}


async def never_fits(show: Show, way: Way) -> dict[str, Any]:
    """A gang that is larger than the cluster."""
    stage, outside = show.stage, show.outside
    job = outside.expect("too-large", way.name, show.places + 4)
    await way.submit(job, CPU)
    with stage.waiting("it is turned away"):
        await outside.until(lambda: all(map(outside.turned_away, members(job))), "all members being turned away")
    stage.command(f"curl {show.service.explain_url('gangs', job.name)}")
    stage.explanation(await show.service.explain("gangs", job.name))
    if job.bound:
        raise NotAsPromised(f"{job.bound} of its members are bound")
    stage.good("Nothing is bound and nothing is held; it disturbs nobody, and would be woken by new nodes.")
    await way.end(job)
    return {"approach": way.name, "gang_size": job.size, "bound": job.bound}


async def measure(show: Show, rounds: int, seed: int) -> list[Measured]:
    """The same gang by each approach, alone on the cluster, in an order drawn from the seed."""
    size = max(2, show.places // 4)
    order = random.Random(seed)
    measured = {way.name: Measured(way.name, way.title) for way in show.ways}
    for number in range(rounds + 1):
        for way in order.sample(list(show.ways), len(show.ways)):
            with show.stage.waiting(f"a gang of {size}, {way.title}: round {max(number, 1)} of {rounds}"):
                job, writes = await _once(show, way, size, number)
            if number > 0:  # The first warms up.
                measured[way.name].milliseconds.append(job.took * 1000)
                measured[way.name].writes.append(writes)
    return list(measured.values())


async def _once(show: Show, way: Way, size: int, number: int) -> tuple[Job, int]:
    outside = show.outside
    before = await outside.writes()
    job = outside.expect(f"{way.name}-{number}", way.name, size)
    await way.submit(job, CPU)
    await outside.until(lambda: job.complete, f"{job.name} being placed")
    await outside.until(lambda: outside.running(job.name) == size, f"{job.name} running")
    await way.end(job)
    await asyncio.sleep(_SETTLE)
    return job, await outside.writes() - before


def verdict(show: Show, measured: list[Measured]) -> list[dict[str, Any]]:
    """Per approach what was measured and what was seen, for the table and for JSON."""
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
