"""Approaches: three ways to have the same job placed, from the same pod manifest.

plain      pods, and nothing else: kube-scheduler as it is
extender   one label and one annotation; the ledger plans, the bind is the barrier
ghosts     pure extended resources: ghost pods hold the room, then the members are let in; no extender is called
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from extender.adapters.kube.extended_resource_gangs import ExtendedResourceGangs, GangRun
from extender.compare.pods import AT_ONCE, create
from extender.core.governing import POLICY
from extender.demo.jobs import Job
from extender.demo.outside import JOB_LABEL, NAMESPACE, PODS, Outside
from extender.esl import Approach, GangSpec, gang
from extender.kube.connection import Connection
from extender.kube.errors import Gone
from extender.kube.requests import METADATA_ONLY

Manifest = dict[str, Any]


class Way(Protocol):
    """How a job is placed. `name` tells the approaches apart in results, `title` is for people."""

    name: str
    title: str

    async def submit(self, job: Job, cpu: str) -> None:
        """The job is asked for; when it is placed, is up to the cluster."""
        ...

    async def end(self, job: Job) -> None:
        """The job has ended, and nothing of it is left."""
        ...


class Plain:
    name, title = "plain", "plain pods"

    def __init__(self, connection: Connection, outside: Outside) -> None:
        self._connection, self._outside = connection, outside

    async def submit(self, job: Job, cpu: str) -> None:
        await self.submit_in_turns([job], cpu)

    async def submit_in_turns(self, jobs: Sequence[Job], cpu: str) -> None:
        """The jobs are asked for at the same time, a pod of each in turn."""
        turns = zip(*([manifest(job, number) for number in range(job.size)] for job in jobs), strict=True)
        made = list(itertools.chain.from_iterable(turns))
        for pod in made:
            pod["spec"]["schedulerName"] = Approach.EXTENDED_RESOURCES.value
            pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        await create(self._connection, made)

    async def end(self, job: Job) -> None:
        self._outside.close(job)
        await remove(self._connection, self._outside, members(job))


class Extender:
    name, title = "extender", "extender (escher)"

    def __init__(self, connection: Connection, outside: Outside) -> None:
        self._connection, self._outside = connection, outside

    async def submit(self, job: Job, cpu: str, policy: str = "") -> None:
        """The same. `policy`: by which its members ask to be governed."""
        ask = _ask(job, cpu)
        pods = [ask.requirement(n, Approach.EXTENDER).attach(manifest(job, n)) for n in range(job.size)]
        for pod in pods if policy else ():
            pod["metadata"]["annotations"][POLICY] = policy
        await create(self._connection, pods)

    async def end(self, job: Job) -> None:
        self._outside.close(job)
        await remove(self._connection, self._outside, members(job))


class Ghosts:
    name, title = "ghosts", "ghosts (no extender)"

    def __init__(self, connection: Connection, outside: Outside, gangs: ExtendedResourceGangs) -> None:
        self._connection, self._outside, self._gangs = connection, outside, gangs
        self._runs: dict[str, tuple[GangRun, asyncio.Task[None]]] = {}

    async def submit(self, job: Job, cpu: str) -> None:
        run = self._gangs.start(_ask(job, cpu))
        launching = asyncio.create_task(self._launch(job, run))
        # Where the demo is interrupted nobody asks for its outcome, and nobody is to read of it.
        launching.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._runs[job.name] = (run, launching)

    async def _launch(self, job: Job, run: GangRun) -> None:
        await run.reserved()
        pods = [run.spec.requirement(n, Approach.EXTENDED_RESOURCES).attach(manifest(job, n)) for n in range(job.size)]
        await create(self._connection, pods)

    async def end(self, job: Job) -> None:
        self._outside.close(job)
        run, launching = self._runs.pop(job.name)
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
        await remove(self._connection, self._outside, members(job))
        run.cancel()
        await run.ended()


def _ask(job: Job, cpu: str) -> GangSpec:
    return gang(job.name, job.size, {"cpu": cpu}, namespace=NAMESPACE)


def members(job: Job) -> list[str]:
    return [f"{job.name}-{number}" for number in range(job.size)]


def manifest(job: Job, number: int) -> Manifest:
    """A member as its author writes it: it says nothing of how it is placed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job.name}-{number}",
            "namespace": NAMESPACE,
            "labels": {JOB_LABEL: job.name},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    }


async def remove(connection: Connection, outside: Outside, names: list[str]) -> None:
    """None of these pods exists any more."""
    left = iter(names)

    async def work() -> None:
        for name in left:
            try:
                await connection.request("DELETE", f"{PODS}/{name}", b'{"gracePeriodSeconds":0}', accept=METADATA_ONLY)
            except Gone:
                continue

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(names)))))
    await outside.until(lambda: not set(names) & set(outside.names()), "the end of the job's pods")
