"""Outside: what anybody can see of the demo's jobs by watching pods and nodes, and how much was written for it.

It knows of each job how many members it has, and nothing of gangs, plans or the ledger: so it can bear witness that no
gang was ever partly bound.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec

from extender.adapters.kube.connection import Requests, address
from extender.adapters.kube.kinds import Kind
from extender.adapters.kube.reflector import Reflector
from extender.core.names import CPU, DOMAIN
from extender.core.units import count
from extender.demo.jobs import PARTLY_AFTER, Job
from extender.demo.picture import OTHERS, Held, Place
from extender.esl.gang_left import GHOST_LABEL

NAMESPACE = "default"
PODS = address("api", "v1", "namespaces", NAMESPACE, "pods")
NODES = address("api", "v1", "nodes")
JOB_LABEL = "demo.escher.dev/job"
_PER_MEMBER, _PER_MEMBER_AND_NODE = 0.02, 0.00001
"""Bindings are single calls, and take a moment; and kube-scheduler looks at nodes for each."""

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


class _Offer(msgspec.Struct):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _Metadata
    status: _Offer = msgspec.field(default_factory=_Offer)


class _Nodes:
    """What the nodes offer. A sink."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self.offers: dict[str, dict[str, str]] = {}

    def replace(self, objects: Iterable[_Node]) -> None:
        self.offers = {}
        for node in objects:
            self.upsert(node)

    def upsert(self, item: _Node) -> None:
        if self.offers.get(item.metadata.name) != item.status.allocatable:
            self.offers[item.metadata.name] = item.status.allocatable
            self._outside.has_changed()

    def remove(self, item: _Node) -> None:
        self.offers.pop(item.metadata.name, None)
        self._outside.has_changed()


class Outside:
    def __init__(self, connection: Requests) -> None:
        self._connection = connection
        self.jobs: list[Job] = []
        self.version = 0
        """Grows with whatever can be seen."""
        self._open: dict[str, Job] = {}
        self._letters: dict[str, str] = {}
        self._pods: dict[str, _Pod] = {}
        self._nodes = _Nodes(self)
        self._changed = asyncio.Event()

    def expect(self, name: str, approach: str, size: int, letter: str = "A") -> Job:
        """A job of that name begins now."""
        patience = max(PARTLY_AFTER, size * self.patience_per_member)
        job = self._open[name] = Job(name, approach, size, letter, patience)
        self._letters[name] = letter
        self.jobs.append(job)
        self.has_changed()
        return job

    @property
    def patience_per_member(self) -> float:
        """Seconds for which a large job may be bound in part, for each of its members."""
        return _PER_MEMBER + _PER_MEMBER_AND_NODE * len(self._nodes.offers)

    def others(self, name: str) -> None:
        """Pods of that job are none of ours; they are seen, and that is all."""
        self._letters[name] = OTHERS

    def close(self, job: Job) -> None:
        job.closes(time.monotonic())
        self._open.pop(job.name, None)
        self.has_changed()

    def open_jobs(self) -> list[Job]:
        return list(self._open.values())

    def ending(self) -> list[Job]:
        """Jobs that have ended, and of which something is left; of those with one name the last."""
        left = {_job(pod) for pod in self._pods.values()} - self._open.keys()
        return list({job.name: job for job in self.jobs if job.name in left}.values())

    def has_changed(self) -> None:
        self.version += 1
        self._changed.set()

    # -- what is there now

    def names(self) -> list[str]:
        """All pods that are ours."""
        return [name for name, pod in self._pods.items() if self._letters.get(_job(pod)) != OTHERS]

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

    def cpus(self) -> dict[str, int]:
        """Thousandths of a CPU that each node offers, in the order of their numbers."""
        offers = {node: count(CPU, offered.get(CPU, "0")) for node, offered in self._nodes.offers.items()}
        return dict(sorted(offers.items(), key=lambda each: _by_number(each[0])))

    def ephemeral(self) -> dict[str, dict[str, int]]:
        """Ephemeral resources that nodes offer: by resource, how much on each node."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for node, offered in self._nodes.offers.items():
            for resource, amount in offered.items():
                if resource.startswith(f"{DOMAIN}/"):
                    found[resource][node] = count(resource, amount)
        return dict(found)

    def taken(self) -> Mapping[str, Counter[Place]]:
        """The places of each node that are taken: by members, and by ghosts alone."""
        members: dict[str, Counter[str]] = defaultdict(Counter)
        ghosts: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in self._pods.values():
            if pod.spec.node_name:
                ghost = pod.metadata.labels.get(GHOST_LABEL)
                (ghosts if ghost else members)[pod.spec.node_name][ghost or _job(pod)] += 1
        found: dict[str, Counter[Place]] = defaultdict(Counter)
        for node in members.keys() | ghosts.keys():
            # A member that a ghost has let in takes that ghost's place.
            for held, jobs in ((Held.BOUND, members[node]), (Held.GHOST, ghosts[node] - members[node])):
                for job, number in jobs.items():
                    found[node][Place(self._letters.get(job, "?"), held)] += number
        return found

    def ghosts(self, job: Job) -> int:
        """How many places are held by nothing but ghosts of the job."""
        return sum(on_node[Place(job.letter, Held.GHOST)] for on_node in self.taken().values())

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
        """While the block lasts, pods and nodes are watched."""
        pods = Reflector(self._connection, Kind("pods", PODS, _Pod, lambda pod: pod), self)
        nodes = Reflector(self._connection, Kind("nodes", NODES, _Node, lambda node: node), self._nodes)
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(pods.run()), group.create_task(nodes.run())]
            await pods.synced.wait()
            await nodes.synced.wait()
            try:
                yield
            finally:
                for each in watching:
                    each.cancel()

    def replace(self, objects: Iterable[_Pod]) -> None:
        self._pods = {}
        for pod in objects:
            self.upsert(pod)
        self.has_changed()

    def upsert(self, item: _Pod) -> None:
        self._pods[item.metadata.name] = item
        job = self._open.get(_job(item))
        if job is not None and item.spec.node_name and GHOST_LABEL not in item.metadata.labels:
            job.sees(item.metadata.name, time.monotonic())
        self.has_changed()

    def remove(self, item: _Pod) -> None:
        self._pods.pop(item.metadata.name, None)
        self.has_changed()

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


def _by_number(name: str) -> tuple[str, int]:
    text = name.rstrip("0123456789")
    return text, int(name[len(text) :] or 0)
