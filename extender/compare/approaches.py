"""Approaches: the ways in which the same gang can be placed, from the same manifest of a pod (see `vocabulary`).

Each is carried out as its users would: pods alone, pods with a label and an annotation, a PodGroup, a Job, or
an application that has ghosts hold the room first. They differ in nothing else: the same client creates the pods.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import msgspec

from extender.adapters.kube.extended_resource_gangs import ExtendedResourceGangs, GangRun
from extender.compare.outside import LABEL, NAMESPACE, PODS
from extender.compare.vocabulary import (
    APPROACHES,
    APPSPACE,
    BASE,
    BASE_AGAIN,
    COSCHEDULING,
    EXTENDER,
    JOB,
    LIBSPACE,
    NATIVE,
)
from extender.core.gang_ask import GANG_GATE, GANG_LABEL, MIN_MEMBER
from extender.esl import Approach, GangSpec, Space, gang
from extender.kube.errors import Gone
from extender.kube.requests import METADATA_ONLY, Requests, address

AT_ONCE = 16
"""Pods that the client creates at the same time, by every approach."""

_JOBS = address("apis", "batch", "v1", "namespaces", NAMESPACE, "jobs")
_COSCHEDULING_API = ("scheduling.x-k8s.io", "v1alpha1")
_EXTENDER, _LEDGER, _PURE = Approach.EXTENDER.value, "escher-ledger", Approach.EXTENDED_RESOURCES.value

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A gang that is to be placed. `cpu` of each member, as Kubernetes spells it."""

    name: str
    size: int
    cpu: str


class Way(Protocol):
    """How a gang is placed. One gang of a name at a time."""

    async def prepare(self, ask: Ask) -> None:
        """What may be there before anybody asks for the gang is there."""
        ...

    async def submit(self, ask: Ask) -> None:
        """The gang is asked for; when it is placed is up to the cluster."""
        ...

    async def end(self, ask: Ask) -> None:
        """The gang has ended; its pods go, and all that was made for it has gone."""
        ...


class Plain:
    """The pods, as `shape` has made them."""

    def __init__(self, requests: Requests, shape: Callable[[Manifest, Ask], None]) -> None:
        self._requests, self._shape = requests, shape

    async def prepare(self, ask: Ask) -> None:
        return

    async def submit(self, ask: Ask) -> None:
        made = [manifest(ask, number) for number in range(ask.size)]
        for each in made:
            self._shape(each, ask)
        await create(self._requests, made)

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)


class Grouped(Plain):
    """Pods whose group is an object in the API, which is there before they are asked for."""

    groups: ClassVar[str]

    @abstractmethod
    def group(self, ask: Ask) -> Manifest: ...

    async def prepare(self, ask: Ask) -> None:
        await self._requests.request("POST", self.groups, msgspec.json.encode(self.group(ask)))

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)
        await self._requests.request("DELETE", f"{self.groups}/{ask.name}")


class Native(Grouped):
    groups = address("apis", "scheduling.k8s.io", "v1alpha2", "namespaces", NAMESPACE, "podgroups")

    def group(self, ask: Ask) -> Manifest:
        return {"metadata": {"name": ask.name}, "spec": {"schedulingPolicy": {"gang": {"minCount": ask.size}}}}


class Coscheduling(Grouped):
    groups = address("apis", *_COSCHEDULING_API, "namespaces", NAMESPACE, "podgroups")

    def group(self, ask: Ask) -> Manifest:
        # A custom resource: the API server does not take its kind from the path.
        kind = {"apiVersion": "/".join(_COSCHEDULING_API), "kind": "PodGroup"}
        return {**kind, "metadata": {"name": ask.name}, "spec": {"minMember": ask.size}}


class ByJob(Plain):
    async def submit(self, ask: Ask) -> None:
        member = manifest(ask, 0)
        self._shape(member, ask)
        del member["metadata"]["name"]
        template = {"metadata": member["metadata"], "spec": {**member["spec"], "restartPolicy": "Never"}}
        spec = {
            "parallelism": ask.size,
            "completions": ask.size,
            "completionMode": "Indexed",
            "template": template,
        }
        await self._requests.request("POST", _JOBS, msgspec.json.encode({"metadata": {"name": ask.name}, "spec": spec}))

    async def end(self, ask: Ask) -> None:
        body = b'{"propagationPolicy":"Background"}'
        await self._requests.request("DELETE", f"{_JOBS}/{ask.name}", body)
        await remove(self._requests, ask)


class Ghosts:
    """The members are made when their ghosts hold the room. `gangs`: of an application, or shared by all."""

    def __init__(self, requests: Requests, gangs: ExtendedResourceGangs) -> None:
        self._requests, self._gangs = requests, gangs
        self._runs: dict[str, tuple[GangRun, asyncio.Task[None]]] = {}

    async def prepare(self, ask: Ask) -> None:
        return

    async def submit(self, ask: Ask) -> None:
        run = self._gangs.start(spec_of(ask))
        launching = asyncio.create_task(self._launch(ask, run))
        # Where the comparison is interrupted nobody asks for its outcome, and nobody is to read of it.
        launching.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._runs[ask.name] = (run, launching)

    async def _launch(self, ask: Ask, run: GangRun) -> None:
        await run.reserved()
        asked = [run.spec.requirement(number, Approach.EXTENDED_RESOURCES) for number in range(ask.size)]
        await create(self._requests, [each.attach(manifest(ask, number)) for number, each in enumerate(asked)])

    async def end(self, ask: Ask) -> None:
        run, launching = self._runs.pop(ask.name)
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
        await remove(self._requests, ask)
        run.cancel()
        await run.ended()


def _scheduled_by(scheduler: str) -> Callable[[Manifest, Ask], None]:
    def shape(pod: Manifest, ask: Ask) -> None:
        pod["spec"]["schedulerName"] = scheduler

    return shape


def _native(pod: Manifest, ask: Ask) -> None:
    pod["spec"] |= {"schedulerName": _PURE, "schedulingGroup": {"podGroupName": ask.name}}


def _coscheduled(pod: Manifest, ask: Ask) -> None:
    pod["metadata"]["labels"][f"{_COSCHEDULING_API[0]}/pod-group"] = ask.name
    pod["spec"]["schedulerName"] = COSCHEDULING


def _a_gang(scheduler: str, *, gated: bool = False) -> Callable[[Manifest, Ask], None]:
    def shape(pod: Manifest, ask: Ask) -> None:
        pod["metadata"]["labels"][GANG_LABEL] = ask.name
        pod["metadata"]["annotations"] = {MIN_MEMBER: str(ask.size)}
        pod["spec"]["schedulerName"] = scheduler
        if gated:
            pod["spec"]["schedulingGates"] = [{"name": GANG_GATE}]

    return shape


_BY_SHAPE: Mapping[str, tuple[type[Plain], Callable[[Manifest, Ask], None]]] = {
    BASE: (Plain, _scheduled_by(_PURE)),
    BASE_AGAIN: (Plain, _scheduled_by(_PURE)),
    "through": (Plain, _scheduled_by(_EXTENDER)),
    EXTENDER: (Plain, _a_gang(_EXTENDER)),
    "gated": (Plain, _a_gang(_EXTENDER, gated=True)),
    "ledger": (Plain, _a_gang(_LEDGER)),
    NATIVE: (Native, _native),
    COSCHEDULING: (Coscheduling, _coscheduled),
    JOB: (ByJob, _scheduled_by(_PURE)),
    "job-gang": (ByJob, _a_gang(_EXTENDER)),
}
_BY_GHOSTS = {APPSPACE: Space.APP, LIBSPACE: Space.LIB}
MADE = tuple(each for each in APPROACHES if each in _BY_SHAPE or each in _BY_GHOSTS)
"""Those that this can carry out."""
REAL_ONLY = frozenset({NATIVE, COSCHEDULING})
"""What the embedded cluster does not have."""


async def ways(requests: Requests, chosen: list[str], stack: AsyncExitStack, seed: int) -> dict[str, Way]:
    """By name. What they keep running ends with the stack."""
    made: dict[str, Way] = {}
    for name in chosen:
        if name in _BY_SHAPE:
            kind, shape = _BY_SHAPE[name]
            made[name] = kind(requests, shape)
        else:
            gangs = ExtendedResourceGangs(requests, namespace=NAMESPACE, space=_BY_GHOSTS[name], seed=seed)
            made[name] = Ghosts(requests, await stack.enter_async_context(gangs))
    return made


def spec_of(ask: Ask) -> GangSpec:
    return gang(ask.name, ask.size, {"cpu": ask.cpu}, namespace=NAMESPACE)


def manifest(ask: Ask, number: int) -> Manifest:
    """A member as its author writes it: it says nothing of how it is placed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{ask.name}-{number}", "namespace": NAMESPACE, "labels": {LABEL: ask.name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": ask.cpu}},
                }
            ],
        },
    }


async def create(requests: Requests, pods: list[Manifest]) -> None:
    """The pods exist; they are created in order, a few at a time."""
    bodies = iter([msgspec.json.encode(pod) for pod in pods])

    async def work() -> None:
        for body in bodies:
            await requests.request("POST", PODS, body, accept=METADATA_ONLY)

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(pods)))))


async def remove(requests: Requests, ask: Ask) -> None:
    """The gang's members are deleted, by one call."""
    try:
        path = f"{PODS}?labelSelector={LABEL.replace('/', '%2F')}%3D{ask.name}"
        await requests.request("DELETE", path, b'{"gracePeriodSeconds":0}')
    except Gone:
        return
