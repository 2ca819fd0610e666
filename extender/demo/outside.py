"""Outside: what anybody can see of the demo's jobs by watching pods, and how much was written for it.

It knows of each job how many members it has, and nothing of gangs, plans or the ledger: so it can bear witness that no
gang was ever partly bound.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from extender.adapters.kube.cluster_port import GHOST_LABEL
from extender.adapters.kube.connection import Connection, address
from extender.adapters.kube.kinds import Kind
from extender.adapters.kube.reflector import Reflector

NAMESPACE = "default"
PODS = address("api", "v1", "namespaces", NAMESPACE, "pods")
JOB_LABEL = "demo.escher.dev/job"
PARTLY_AFTER = 1.0
"""Seconds after which a job that is bound in part counts as such: Bindings are single calls, and take a moment."""

_MUTATING = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
_NOT_COUNTED = {"leases", "events"}
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Late(Exception):
    """What was waited for did not happen in time; `str()` says what it was."""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass
class Job:
    """One job as seen from outside. Times are of the monotonic clock, in seconds."""

    name: str
    approach: str
    size: int
    began: float = field(default_factory=time.monotonic)
    bound_at: dict[str, float] = field(default_factory=dict)
    partly_for: float = 0.0
    """The longest time for which some, but not all, of its members were bound."""
    _partly_since: float | None = None

    @property
    def bound(self) -> int:
        return len(self.bound_at)

    @property
    def complete(self) -> bool:
        return self.bound >= self.size

    @property
    def took(self) -> float:
        """Seconds from `began` until its last member was bound."""
        return max(self.bound_at.values()) - self.began

    def sees(self, pod: str, now: float) -> None:
        self.bound_at.setdefault(pod, now)
        if self._partly_since is None:
            self._partly_since = now
        if self.complete:
            self.closes(now)

    def closes(self, now: float) -> None:
        """Whatever happens to it from now on is its end, and says nothing."""
        if self._partly_since is not None and self.partly_for == 0.0:
            self.partly_for = now - self._partly_since

    @property
    def was_partial(self) -> bool:
        return self.partly_for > PARTLY_AFTER


class Outside:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.jobs: list[Job] = []
        self._open: dict[str, Job] = {}
        self._pods: dict[str, _Pod] = {}
        self._changed = asyncio.Event()

    def expect(self, name: str, approach: str, size: int) -> Job:
        """A job of that name begins now."""
        job = self._open[name] = Job(name, approach, size)
        self.jobs.append(job)
        return job

    def close(self, job: Job) -> None:
        job.closes(time.monotonic())
        self._open.pop(job.name, None)

    def open_jobs(self) -> list[Job]:
        return list(self._open.values())

    # -- what is there now

    def names(self) -> list[str]:
        return list(self._pods)

    def node_of(self, pod: str) -> str | None:
        found = self._pods.get(pod)
        return None if found is None else found.spec.node_name

    def turned_away(self, pod: str) -> bool:
        """Whether kube-scheduler has said that the pod cannot be placed now."""
        found = self._pods.get(pod)
        said = found.status.conditions if found else []
        return any(each.type == "PodScheduled" and each.status == "False" for each in said)

    def running(self, job: str) -> int:
        return sum(_job(pod) == job and pod.status.phase == "Running" for pod in self._pods.values())

    def by_node(self) -> dict[str, list[str]]:
        """The jobs that hold room on each node, once a place; in parentheses where only a ghost does."""
        members: dict[str, Counter[str]] = defaultdict(Counter)
        ghosts: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in self._pods.values():
            if pod.spec.node_name:
                ghost = pod.metadata.labels.get(GHOST_LABEL)
                (ghosts if ghost else members)[pod.spec.node_name][ghost or _job(pod)] += 1
        found = {}
        for node in members.keys() | ghosts.keys():
            # A member that a ghost has let in takes that ghost's place.
            alone = ghosts[node] - members[node]
            jobs = [*members[node].elements(), *(f"({job})" for job in alone.elements())]
            found[node] = sorted(jobs, key=lambda job: job.strip("()"))
        return found

    def ghosts(self, job: str) -> int:
        """How many ghosts of the job hold room."""
        return sum(jobs.count(f"({job})") for jobs in self.by_node().values())

    async def until(self, holds: Callable[[], bool], what: str, *, within: float = 30.0) -> None:
        try:
            async with asyncio.timeout(within):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Late(f"{what}: not within {within:g} s") from None

    # -- the watch: this is its sink

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """While the block lasts, pods are watched."""
        reflector = Reflector(self._connection, Kind("pods", PODS, _Pod, lambda pod: pod), self)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(reflector.run())
            await reflector.synced.wait()
            try:
                yield
            finally:
                watching.cancel()

    def replace(self, objects: Iterable[_Pod]) -> None:
        self._pods = {}
        for pod in objects:
            self.upsert(pod)
        self._changed.set()

    def upsert(self, item: _Pod) -> None:
        self._pods[item.metadata.name] = item
        job = self._open.get(_job(item))
        if job is not None and item.spec.node_name and GHOST_LABEL not in item.metadata.labels:
            job.sees(item.metadata.name, time.monotonic())
        self._changed.set()

    def remove(self, item: _Pod) -> None:
        self._pods.pop(item.metadata.name, None)
        self._changed.set()

    # -- the price

    async def writes(self) -> int:
        """Writes that succeeded, as the API server has counted them; leases and events are left out."""
        text = (await self._connection.request("GET", "/metrics", accept="text/plain")).decode()
        total = 0.0
        for labels, value in _REQUESTS.findall(text):
            said = dict(_LABEL.findall(labels))
            counts = said.get("verb") in _MUTATING and said.get("resource") not in _NOT_COUNTED
            if counts and said.get("code", "").startswith("2"):
                total += float(value)
        return int(total)


def _job(pod: _Pod) -> str:
    return pod.metadata.labels.get(JOB_LABEL, "")
