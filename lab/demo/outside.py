"""Outside: the demo's jobs as seen by watching pods and nodes, and the number of writes for them.

It has each job's size, and no gangs, plans or ledger. So it is an independent witness that no gang was ever partly
bound.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from extender.core.names import DOMAIN
from extender.esl.gangs.departed import GHOST_LABEL
from extender.kube.client.requests import Requests, address
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.compare.costs import told, writes
from lab.compare.trials.outside import LABEL, PODS, is_turned_away
from lab.controlplane.witness import Changing, Collection, Json, Sighting, following, name_of
from lab.demo.jobs import PARTLY_AFTER, Job
from lab.demo.picture import OTHERS, Held, Place

NODES = address("api", "v1", "nodes")
Rule = Callable[[Mapping[str, str]], bool]
_PER_MEMBER, _PER_MEMBER_AND_NODE = 0.02, 0.00001
"""Seconds. Each binding is a call, for which kube-scheduler also checks the nodes."""


class _Pod(NamedTuple):
    """The fields of a pod that the demo uses."""

    name: str
    job: str
    ghost_of: str
    """The gang whose ghost it is; empty if it is none."""
    node: str | None
    phase: str
    turned_away: bool
    """Whether kube-scheduler has reported that it cannot be placed now."""


class Outside(Changing):
    def __init__(self, connection: Requests) -> None:
        super().__init__()
        self._connection = connection
        self.jobs: list[Job] = []
        self._open: dict[str, Job] = {}
        self._letters: dict[str, str] = {}
        self._pods = Collection(PODS, "Pod", self._see_pod, read=_read_pod, identity=name_of)
        self._nodes = Collection(NODES, "Node", self._see_node, read=_offers, identity=name_of)

    def expect(self, name: str, approach: str, size: int, letter: str = "A", rule: Rule | None = None) -> Job:
        """Begins a job of that name. `rule`: the condition for its pods' nodes."""
        patience = max(PARTLY_AFTER, size * self.patience_per_member)
        job = self._open[name] = Job(name, approach, size, letter, patience, rule=rule)
        self._letters[name] = letter
        self.jobs.append(job)
        self.has_changed()
        return job

    @property
    def patience_per_member(self) -> float:
        """Seconds for which a large job may be bound in part, for each of its members."""
        return _PER_MEMBER + _PER_MEMBER_AND_NODE * len(self._nodes.known)

    def others(self, name: str) -> None:
        """Marks the pods of that job as others' work; they are only shown."""
        self._letters[name] = OTHERS

    def close(self, job: Job) -> None:
        job.closes(time.monotonic())
        self._open.pop(job.name, None)
        self.has_changed()

    def open_jobs(self) -> list[Job]:
        return list(self._open.values())

    def ending(self) -> list[Job]:
        """Jobs that have ended but still have pods; of jobs with one name the last."""
        left = {pod.job for pod in self._present()} - self._open.keys()
        return list({job.name: job for job in self.jobs if job.name in left}.values())

    # -- what is there now

    def _present(self) -> Iterator[_Pod]:
        return (each.seen for each in self._pods.known.values())

    def names(self) -> list[str]:
        """All pods of the demo's own jobs."""
        return [pod.name for pod in self._present() if self._letters.get(pod.job) != OTHERS]

    def node_of(self, pod: str) -> str | None:
        found = self._pods.known.get(pod)
        return None if found is None else found.seen.node

    def turned_away(self, pod: str) -> bool:
        """Whether kube-scheduler has reported that the pod cannot be placed now."""
        found = self._pods.known.get(pod)
        return found is not None and found.seen.turned_away

    def running(self, job: str) -> int:
        return sum(pod.job == job and pod.phase == "Running" for pod in self._present())

    async def until_gone(self, *pods: str) -> None:
        """Waits until none of these pods exists. Raises Late."""
        await self.until(lambda: self._pods.known.keys().isdisjoint(pods), "the end of the job's pods")

    def cpus(self) -> dict[str, int]:
        """Thousandths of a CPU that each node offers, in the order of their numbers."""
        offers = {name: count(CPU, node.seen.get(CPU, "0")) for name, node in self._nodes.known.items()}
        return dict(sorted(offers.items(), key=lambda each: _by_number(each[0])))

    def ephemeral(self) -> dict[str, dict[str, int]]:
        """Ephemeral resources that nodes offer: by resource, the units on each node."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for name, node in self._nodes.known.items():
            for resource, amount in node.seen.items():
                if resource.startswith(f"{DOMAIN}/"):
                    found[resource][name] = count(resource, amount)
        return dict(found)

    def taken(self) -> Mapping[str, Counter[Place]]:
        """The taken places of each node: by members, and by ghosts without a member."""
        members: dict[str, Counter[str]] = defaultdict(Counter)
        ghosts: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in self._present():
            if pod.node:
                (ghosts if pod.ghost_of else members)[pod.node][pod.ghost_of or pod.job] += 1
        found: dict[str, Counter[Place]] = defaultdict(Counter)
        for node in members.keys() | ghosts.keys():
            # A member that a ghost has let in takes that ghost's place.
            for held, jobs in ((Held.BOUND, members[node]), (Held.GHOST, ghosts[node] - members[node])):
                for job, number in jobs.items():
                    found[node][Place(self._letters.get(job, "?"), held)] += number
        return found

    # -- the watch

    def following(self) -> AbstractAsyncContextManager[None]:
        """Watches pods and nodes during the block."""
        return following(self._connection, self._pods, self._nodes)

    def _see_pod(self, sighting: Sighting[_Pod]) -> None:
        pod = sighting.seen
        job = self._open.get(pod.job)
        if job is not None and not pod.ghost_of and (pod.node or sighting.gone):
            job.stands(pod.name, None if sighting.gone else pod.node)
        if job is not None and pod.node and not pod.ghost_of and not sighting.gone:
            job.sees(pod.name, sighting.time)
        self.has_changed()

    def _see_node(self, sighting: Sighting[dict[str, str]]) -> None:
        if sighting.gone or sighting.seen != sighting.before:
            self.has_changed()

    # -- the price

    async def writes(self) -> int:
        """Writes that succeeded, counted by the API server, without leases and events."""
        return int(writes(await told(self._connection)) or 0)


def _read_pod(found: Json) -> _Pod:
    status, labels = found.get("status") or {}, found["metadata"].get("labels") or {}
    return _Pod(
        name=name_of(found),
        job=labels.get(LABEL, ""),
        ghost_of=labels.get(GHOST_LABEL, ""),
        node=found["spec"].get("nodeName"),
        phase=status.get("phase", ""),
        turned_away=is_turned_away(found),
    )


def _offers(found: Json) -> dict[str, str]:
    """The node's allocatable resources."""
    said: dict[str, str] = (found.get("status") or {}).get("allocatable") or {}
    return said


def _by_number(name: str) -> tuple[str, int]:
    text = name.rstrip("0123456789")
    return text, int(name[len(text) :] or 0)


def ghosts(outside: Outside, job: Job) -> int:
    """The number of places that are held only by ghosts of the job."""
    return sum(on_node[Place(job.letter, Held.GHOST)] for on_node in outside.taken().values())
