"""Approaches: three of the comparison's, under the demo's names, and how jobs begin and end.

plain      pods, and nothing else: kube-scheduler as it is
extender   one label and one annotation; the ledger plans, the bind is the barrier
ghosts     pure extended resources: ghost pods hold the room, then the members are let in; no extender is called
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from extender.kube.client.requests import Requests
from lab.compare.trials.approaches import Way
from lab.compare.trials.outside import PODS
from lab.compare.trials.pods import delete
from lab.compare.trials.workloads import Ask
from lab.demo.jobs import Job
from lab.demo.outside import Outside


@dataclass(frozen=True)
class Shown:
    """How a job is placed. `name`: for results; `title`: for people; `cpu`: of a member."""

    name: str
    title: str
    way: Way
    outside: Outside
    cpu: str

    async def submit(self, job: Job) -> None:
        """Creates the job's pods; the cluster decides when to place them."""
        await self.way.submit(ask(job, self.cpu))

    async def end(self, job: Job) -> None:
        """Ends the job and waits until its pods are gone."""
        self.outside.close(job)
        await self.way.end(ask(job, self.cpu))
        await self.outside.until_gone(*members(job))


def ask(job: Job, cpu: str) -> Ask:
    return Ask(job.name, job.size, {"cpu": cpu})


def members(job: Job) -> list[str]:
    return [f"{job.name}-{number}" for number in range(job.size)]


async def remove(requests: Requests, outside: Outside, pods: Collection[str]) -> None:
    """Deletes these pods and waits until they are gone."""
    for pod in pods:
        await delete(requests, f"{PODS}/{pod}")
    await outside.until_gone(*pods)
