"""Two tenants of one cluster in virtual time: `victim` works, `liar` may write what a namespace's owner may write."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubesim.kinds import JOB, NAMESPACE, POD, PRIORITY_CLASS, Json, Kind
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.asking import EPHEMERAL_RESOURCE
from tests.kubesim.until import until

VICTIM, LIAR, THIRD = "victim", "liar", "third"
PRIORITIES = {"low": 10, "between": 50, "mid": 100, "high": 1000}
POLICY = Kind("escher.dev", "v1alpha1", "EscherPolicy", "escherpolicies")
DATA = f"escher.dev/{VICTIM}.data"
MERGE = "application/merge-patch+json"


class Tenants(ABC):
    """After `settle`: the victim has a resource that a pod holds, a gang by label, a Job's gang, and a policy."""

    def __init__(self) -> None:
        self.before: Mapping[str, tuple[str, str]] = {}
        self.liar = LIAR
        """The namespace whose owner lies."""

    @abstractmethod
    async def create(self, namespace: str, body: Mapping[str, Any], kind: Kind = POD) -> Json: ...

    @abstractmethod
    async def edit(self, kind: Kind, name: str, patch: Mapping[str, Any], *, status: bool = False) -> Json: ...

    @abstractmethod
    def all(self, namespace: str, kind: Kind = POD) -> dict[str, Json]: ...

    @abstractmethod
    def violations(self) -> int:
        """How many invariants the service found violated."""

    async def lie(self, body: Mapping[str, Any], kind: Kind = POD) -> Json:
        return await self.create(self.liar, body, kind)

    def bound(self, namespace: str, prefix: str = "") -> dict[str, tuple[str, str]]:
        """UID and node of each pod that has a node and is not being deleted."""
        return {
            name: (each["metadata"]["uid"], each["spec"]["nodeName"])
            for name, each in self.all(namespace).items()
            if name.startswith(prefix) and each["spec"].get("nodeName") and "deletionTimestamp" not in each["metadata"]
        }

    async def bound_within(self, namespace: str, prefix: str, number: int, seconds: float = 10.0) -> None:
        what = f"{number} pods {prefix}* of {namespace} are bound"
        await until(lambda: len(self.bound(namespace, prefix)) == number, within=seconds, what=what)

    async def gang(self, namespace: str, name: str, size: int, *, quorum: int | None = None, **about: Any) -> None:
        for number in range(size):
            each = pod(f"{name}-{number}", gang=name, quorum=quorum or size, **{"cpu": "500m", **about})
            await self.create(namespace, each)

    async def settle(self) -> None:
        """The victim works, and what it has is noted."""
        data = {"metadata": {"name": "data"}, "spec": {"nodes": {"node-0": 4}}}
        await self.create(VICTIM, data, EPHEMERAL_RESOURCE)
        await self.create(VICTIM, a_reader("reader", 1))
        await self.gang(VICTIM, "train", 3)
        await self.create(VICTIM, a_job("nightly", 2), JOB)
        apart = {"type": "anti-affinity", "selector": {"matchLabels": {"app": "web"}}}
        await self.create(VICTIM, {"metadata": {"name": "apart"}, "spec": apart}, POLICY)
        for number in range(2):
            await self.create(VICTIM, pod(f"web-{number}", cpu="500m", labels={"app": "web"}))
        await self.bound_within(VICTIM, "", 8)
        self.before = self.bound(VICTIM)

    async def is_unharmed(self, after: float = 120.0) -> None:
        """What the victim had is as it was, and what it wants now comes as soon as ever."""
        await asyncio.sleep(after)
        await self.gang(VICTIM, "late", 3)
        await self.bound_within(VICTIM, "late-", 3)
        await self.create(VICTIM, a_reader("late", 3))
        await self.bound_within(VICTIM, "late", 4)
        now = self.bound(VICTIM)
        assert {name: now.get(name) for name in self.before} == self.before
        assert self.all(VICTIM, EPHEMERAL_RESOURCE)["data"]["spec"]["nodes"] == {"node-0": 4}
        [policy] = self.all(VICTIM, POLICY).values()
        assert policy["status"]["conditions"][0]["status"] == "True"
        assert now["web-0"][1] != now["web-1"][1]
        assert self.violations() == 0


class Town(Tenants):
    """In a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.simulation = simulation

    async def create(self, namespace: str, body: Mapping[str, Any], kind: Kind = POD) -> Json:
        return await self.simulation.create(said(namespace, body, kind), kind)

    async def edit(self, kind: Kind, name: str, patch: Mapping[str, Any], *, status: bool = False) -> Json:
        path = kind.path(self.liar, name, "status" if status else "")
        return await self.simulation.ask("PATCH", path, patch, content_type=MERGE)

    def all(self, namespace: str, kind: Kind = POD) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.simulation.cluster.api.store.list(kind, namespace)}

    def violations(self) -> int:
        return len(self.simulation.application.scheduler.cache.violations())


def said(namespace: str, body: Mapping[str, Any], kind: Kind) -> Json:
    """The object as it is written to the API server."""
    metadata = {**body["metadata"], "namespace": namespace}
    return {**body, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def a_reader(name: str, units: int) -> Json:
    """A pod that asks for so many units of the victim's resource."""
    asks: dict[str, Any] = {DATA: units}
    return pod(name, cpu="500m", **asks)


def a_job(name: str, pods: int, **about: Any) -> Json:
    """A Job that is a gang of all of its pods."""
    template = pod("x", quorum=pods, cpu="500m", **about)
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations")}
    work = {"metadata": metadata, "spec": template["spec"]}
    return {"metadata": {"name": name}, "spec": {"parallelism": pods, "completions": pods, "template": work}}


@asynccontextmanager
async def no_tenants_yet(nodes: int = 4) -> AsyncIterator[Town]:
    """Both namespaces, and a third; priorities `low`, `between`, `mid` and `high`; and no pod."""
    async with Simulation(nodes=nodes, node_shape=NodeShape(cpu="8")) as simulation:
        for name in (VICTIM, LIAR, THIRD):
            await simulation.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, NAMESPACE)
        for name, value in PRIORITIES.items():
            about = {"value": value, "preemptionPolicy": "PreemptLowerPriority"}
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **about}
            await simulation.create(body, PRIORITY_CLASS)
        yield Town(simulation)


@asynccontextmanager
async def two_tenants() -> AsyncIterator[Town]:
    async with Simulation(nodes=4) as simulation:
        for name in (VICTIM, LIAR):
            await simulation.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, NAMESPACE)
        town = Town(simulation)
        await town.settle()
        yield town
