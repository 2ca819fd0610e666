"""The board: the picture's present content, from the watch and from the service's plans.

Pods and nodes come from the watch. The ledger's plans are not in the cluster before members are bound. So the board
requests them from the service every `_ASK` seconds, but only while the picture is live and a gang is not complete.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from extender.core.names import DOMAIN
from lab.demo.jobs import Job
from lab.demo.outside import Outside
from lab.demo.picture import Held, JobSeen, NodeSeen, Place, Seen, places_of
from lab.demo.room import FreeRoom
from lab.demo.service import Service, ServiceTrouble
from lab.demo.stage import Stage

_LOOK = 0.1
_ASK = 0.15
_PLANNED = ("reserved", "at-barrier", "binding")
_MOST_NAMED = 2


class Board:
    def __init__(self, outside: Outside, service: Service, stage: Stage, room: FreeRoom) -> None:
        self._outside, self._service, self._stage, self._room = outside, service, stage, room
        self._gangs: dict[str, dict[str, Any]] = {}
        self._asks = True
        self._nodes: tuple[NodeSeen, ...] = ()
        self._nodes_of: tuple[int, int] | None = None
        self._answers = 0

    def seen(self) -> Seen:
        return Seen(self.nodes(), self._room.nodes, self._jobs(), self._ephemeral())

    def nodes(self) -> tuple[NodeSeen, ...]:
        """The nodes that have places, and the jobs on them."""
        of = (self._outside.version, self._answers)
        if self._nodes_of != of:
            self._nodes, self._nodes_of = self._look(), of
        return self._nodes

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Shows the board on the stage during the block, if the stage can show pictures."""
        with self._stage.live(self.seen) as shown:
            tasks = [asyncio.create_task(each) for each in (self._show(), self._ask())] if shown else []
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """Sends no requests to the service during the block, because something is measured."""
        self._asks = False
        try:
            yield
        finally:
            self._asks = True

    async def _show(self) -> None:
        while True:
            self._stage.refresh()
            await asyncio.sleep(_LOOK)

    async def _ask(self) -> None:
        while True:
            open_jobs = [job for job in self._outside.open_jobs() if job.approach == "extender"]
            gangs: dict[str, dict[str, Any]] = {}
            if self._asks and not all(job.complete for job in open_jobs):
                try:
                    gangs = {gang["name"]: gang for gang in await self._service.gangs()}
                except ServiceTrouble:  # The scenes report it if it lasts.
                    gangs = self._gangs
            if gangs != self._gangs:
                self._gangs = gangs
                self._answers += 1
            await asyncio.sleep(_ASK)

    def _look(self) -> tuple[NodeSeen, ...]:
        taken = {node: Counter(places) for node, places in self._outside.taken().items()}
        for job in self._outside.open_jobs():
            for member in self._planned(job):
                taken.setdefault(member["node"], Counter())[Place(job.letter, Held.PLANNED)] += 1
        offering = {node for nodes in self._outside.ephemeral().values() for node in nodes}
        return tuple(
            NodeSeen(node, places, places_of(taken.get(node, {})), node in offering)
            for node, places in self._room.places.items()
        )

    def _planned(self, job: Job) -> list[dict[str, Any]]:
        """Members for which the ledger has a node and which the watch has not seen on one."""
        members = self._gangs.get(job.name, {}).get("members", [])
        planned = [each for each in members if each["phase"] in _PLANNED and each["node"]]
        return [each for each in planned if self._outside.node_of(each["name"]) is None]

    def _jobs(self) -> tuple[JobSeen, ...]:
        places = Counter(place for node in self.nodes() for place in node.taken)
        open_jobs = self._outside.open_jobs()
        shown = [self._job(job, places) for job in open_jobs]
        for job in self._outside.ending():
            bound = places[Place(job.letter, Held.BOUND)]
            shown.append(JobSeen(job.letter, job.name, job.size, min(bound, job.size), state="ends"))
        return tuple(sorted(shown, key=lambda job: job.letter))

    def _job(self, job: Job, places: Counter[Place]) -> JobSeen:
        bound, planned, ghosts = (places[Place(job.letter, held)] for held in Held)
        seen = JobSeen(job.letter, job.name, job.size, bound, planned + ghosts, "waits")
        if bound >= job.size:
            return replace(seen, held=0, state=f"bound after {_time(job.took)}")
        if not job.approach and bound:
            # Its pods are independent: some may wait without holding up the others.
            return replace(seen, state=f"{job.size - bound} waits" if bound == job.size - 1 else "binds")
        if job.partly_since is not None and time.monotonic() - job.partly_since > job.patience:
            return replace(seen, state="bound in part", bad=True)
        if bound:
            return replace(seen, state="binds")
        if ghosts:
            return replace(seen, state=f"ghosts hold {ghosts}")
        if gang := self._gangs.get(job.name):
            return replace(seen, state=gang["phase"], why=gang["reason"])
        return seen

    def _ephemeral(self) -> tuple[str, ...]:
        said = []
        resources = self._outside.ephemeral()
        for resource, nodes in sorted(resources.items())[:_MOST_NAMED]:
            where = next(iter(nodes)) if len(nodes) == 1 else f"{len(nodes)} nodes"
            said.append(f"{resource.removeprefix(f'{DOMAIN}/')}: {sum(nodes.values())} on {where}")
        if len(resources) > _MOST_NAMED:
            said.append(f"{len(resources) - _MOST_NAMED} more")
        return tuple(said)


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
