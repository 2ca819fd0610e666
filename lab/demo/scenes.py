"""The scenes: each changes the cluster, watches the result from outside, and reports it.

A scene that does not come out as promised is reported and fails the demo; the next one is played all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.core.names import DOMAIN
from extender.esl import Approach
from extender.kube.client.connection import Connection
from extender.kube.errors import Refused, Unavailable
from lab.compare.trials.approaches import member
from lab.compare.trials.outside import NAMESPACE
from lab.compare.trials.pods import Manifest, create, manifest
from lab.compare.trials.workloads import Ask
from lab.compare.vocabulary import BASE
from lab.controlplane.witness import Late
from lab.demo.approaches import Shown, ask, members, remove
from lab.demo.board import Board
from lab.demo.jobs import Job
from lab.demo.outside import Outside, ghosts
from lab.demo.room import FreeRoom
from lab.demo.service import Service, ServiceTrouble
from lab.demo.stage import Stage

SETTLE = 0.2
"""Seconds for all watches to catch up with an empty cluster, the same for every approach."""
_OTHERS = "others"
LOOK = 1.5
"""Seconds to look at the picture, if there is one, before the next step."""


class NotAsPromised(Exception):
    """The scene did not come out as promised; `str()` says how."""


@dataclass
class Show:
    """The objects that the scenes share."""

    connection: Connection
    outside: Outside
    service: Service
    stage: Stage
    board: Board
    ways: Sequence[Shown]
    room: FreeRoom
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def places(self) -> int:
        return self.room.total

    async def play(self, name: str, title: str, scene: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Plays the scene and records its result."""
        self.stage.scene(title)
        began = time.monotonic()
        result: dict[str, Any] = {"name": name, "passed": True}
        try:
            result |= await scene()
        except (NotAsPromised, Late, ServiceTrouble, Unavailable, Refused) as error:
            result |= {"passed": False, "problem": str(error)}
            self.stage.bad(str(error))
            await self._clear()
        await asyncio.sleep(SETTLE)
        self.results.append(result | {"seconds": round(time.monotonic() - began, 3)})

    async def _clear(self) -> None:
        """Removes what a failed scene has left, as far as possible."""
        try:
            for way in self.ways:
                for job in [job for job in self.outside.open_jobs() if job.approach == way.name]:
                    await way.end(job)
            await remove(self.connection, self.outside, self.outside.names())
        except (Late, Unavailable, Refused) as error:
            self.stage.bad(f"could not clean up: {error}")

    def map(self) -> None:
        self.stage.map(self.board.nodes())


async def other_work(show: Show) -> None:
    """Fills the busy nodes with pods of another application."""
    show.outside.others(_OTHERS)
    pods = []
    for number, node in enumerate(sorted(show.room.busy)):
        cpu = f"{show.room.milli * show.room.places[node]}m"
        pods.append(member(BASE, Ask(_OTHERS, 1, {"cpu": cpu}), number))
        pods[-1]["spec"]["nodeName"] = node
    with show.stage.waiting("others fill their nodes"):
        await create(show.connection, pods)


async def late_resource(show: Show) -> dict[str, Any]:
    """Pods of both approaches request a resource before it is created."""
    stage, outside = show.stage, show.outside
    key, node = f"{DOMAIN}/{NAMESPACE}.data1", show.room.free[-1]
    readers = {"reader-extender": Approach.EXTENDER, "reader-resources": Approach.EXTENDED_RESOURCES}
    stage.say(f"Two pods ask for {key}: 1. Nobody has created it, so both wait.")
    job = outside.expect("readers", "", len(readers), "R")
    await create(show.connection, [_reader(name, approach, key) for name, approach in readers.items()])
    with stage.waiting("kube-scheduler tries"):
        await outside.until(lambda: all(map(outside.turned_away, readers)), "both readers waiting")
    stage.command("escher explain pod reader-extender")
    stage.explanation(await show.service.explain("pods", "reader-extender"))
    await stage.look(LOOK)
    stage.say(f"An application stores its data on {node}, and says so:")
    stage.command(f"escher resource set data1 2 --node {node}")
    began = time.monotonic()
    await show.service.set_resource("data1", 2, node)
    with stage.waiting("the readers are placed"):
        await outside.until(lambda: job.complete, f"both readers bound to {node}")
    where = {name: outside.node_of(name) for name in readers}
    if set(where.values()) != {node}:
        raise NotAsPromised(f"the readers are on {where}, and only {node} has the resource")
    told = {approach.value: (job.bound_at[name] - began) * 1000 for name, approach in readers.items()}
    stage.good(f"Both run on {node}, " + ", ".join(f"{name} after {took:.0f} ms" for name, took in told.items()) + ".")
    await stage.look(LOOK)
    outside.close(job)
    await remove(show.connection, outside, list(readers))
    await show.service.delete_resource("data1")
    return {"node": node, "bound_after_ms": {name: round(took, 1) for name, took in told.items()}}


def _reader(name: str, approach: Approach, key: str) -> Manifest:
    pod = manifest(Ask("readers", 1, {}), 0, name)
    pod["spec"]["schedulerName"] = approach.value
    pod["spec"]["containers"][0]["resources"] = {"limits": {key: "1"}}
    return pod


async def contention(show: Show, way: Shown) -> dict[str, Any]:
    """Two gangs want the cluster at the same time, and only one fits."""
    stage, outside = show.stage, show.outside
    jobs = _contention(show, way)
    size = jobs[0].size
    await asyncio.gather(*(way.submit(job) for job in jobs))
    with stage.waiting("one of the two is placed"):
        await outside.until(lambda: any(job.complete for job in jobs), "one of the two gangs being placed")
    first, second = sorted(jobs, key=lambda job: job.bound, reverse=True)
    with stage.waiting("to see that nothing more happens"):
        await asyncio.sleep(second.patience * 1.2)
    if second.bound:
        raise NotAsPromised(f"{second.bound} of {size} members of {second.name} are bound, and the others do not fit")
    placed = f"{first.letter} is placed, {size} of {size}, after {first.took * 1000:.0f} ms."
    if held := ghosts(outside, second):
        show.map()
        stage.say(f"{placed} {second.letter}'s ghosts hold what is left, {held} places, until they time out.")
        with stage.waiting("the ghosts give up"):
            await outside.until(lambda: not ghosts(outside, second), f"the end of {second.name}'s ghosts")
        placed = ""
    show.map()
    stage.good(f"{placed} {second.letter} holds nothing and waits its turn.".strip())
    if way.name == "extender":
        stage.say(f"Why does {second.letter} wait?")
        stage.command(f"escher explain gang {second.name}")
        stage.explanation(await show.service.explain("gangs", second.name))
        await stage.look(LOOK)
    woken = await _wakes(show, way, first, second)
    await way.end(second)
    return {
        "approach": way.name,
        "gang_size": size,
        "first_placed_after_ms": round(first.took * 1000, 1),
        "second_placed_after_end_of_first_ms": round(woken * 1000, 1),
    }


def _contention(show: Show, way: Shown) -> list[Job]:
    size = show.places * 3 // 4
    return [show.outside.expect(f"{way.name}-{letter.lower()}", way.name, size, letter) for letter in "AB"]


async def _wakes(show: Show, way: Shown, first: Job, second: Job) -> float:
    """Ends the first gang; returns the seconds until the second is placed."""
    before = time.monotonic()
    ending = asyncio.create_task(way.end(first))
    try:
        with show.stage.waiting(f"{first.letter} ends, so {second.letter} is placed"):
            until = f"gang {second.name} being placed when the other has ended"
            await show.outside.until(lambda: second.complete, until)
    finally:
        await ending
    woken = max(second.bound_at.values()) - before
    show.map()
    placed = f"{second.letter} is placed, {second.size} of {second.size}"
    show.stage.good(f"{first.letter} ends; {placed}, {woken * 1000:.0f} ms later.")
    await show.stage.look(LOOK)
    return woken


async def stuck(show: Show, way: Shown) -> dict[str, Any]:
    """The same two jobs as pods without gangs, created alternately."""
    jobs = _contention(show, way)
    asks = [ask(job, way.cpu) for job in jobs]
    size = jobs[0].size
    await create(show.connection, [member(BASE, each, number) for number in range(size) for each in asks])
    with show.stage.waiting("kube-scheduler binds whatever fits"):
        await show.outside.until(lambda: sum(job.bound for job in jobs) == show.places, "a full cluster")
        await asyncio.sleep(jobs[0].patience * 1.2)
    show.map()
    bound = {job.name: job.bound for job in jobs}
    said = ", ".join(f"{job.letter} has {job.bound} of {size}" for job in jobs)
    partly = [job for job in jobs if 0 < job.bound < size]
    if len(partly) == len(jobs):
        show.stage.say(f"{said}: neither can begin, and each holds what the other needs.")
    else:
        show.stage.say(f"{said}: whoever is not complete holds room for nothing.")
    await show.stage.look(LOOK)
    for job in jobs:
        await way.end(job)
    return {"approach": way.name, "gang_size": size, "bound": bound}


async def never_fits(show: Show, way: Shown) -> dict[str, Any]:
    """A gang that is larger than the cluster."""
    stage, outside = show.stage, show.outside
    job = outside.expect("too-large", way.name, show.places + 4, "C")
    await way.submit(job)
    with stage.waiting("it is turned away"):
        await outside.until(lambda: all(map(outside.turned_away, members(job))), "all members being turned away")
    await stage.look(LOOK)
    stage.say("Why does this one wait?")
    stage.command(f"escher explain gang {job.name}")
    answer = await show.service.explain("gangs", job.name)
    stage.explanation(answer)
    if job.bound:
        raise NotAsPromised(f"{job.bound} of its members are bound")
    stage.good("Nothing is bound and nothing is held; it disturbs nobody, and would be woken by new nodes.")
    await stage.look(LOOK)
    await way.end(job)
    return {"approach": way.name, "gang_size": job.size, "bound": job.bound, "explanation": answer["summary"]}
