"""A cluster port as an application might write one: it looks at pods and nodes every so often, and sends requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from escher_k8s.esl import (
    CancelTask,
    CapacitySeen,
    Change,
    CreateGhost,
    DeleteGhost,
    Event,
    EvictMember,
    Gone,
    LaunchTask,
    Looked,
    NodeGone,
    NodeSeen,
    PodGone,
    Refused,
    SetCapacity,
    StopTask,
    TaskChange,
    TryAgain,
    ghost_manifest,
    node_seen,
    pod_seen,
)
from extender.kube import errors
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import count
from lab.simulation import Simulation

MERGE_PATCH = "application/merge-patch+json"


class PollingPort:
    """Implements `ClusterPort` and `PolicyPort` on the API server of a simulation."""

    def __init__(self, simulation: Simulation, namespace: str, every: float = 0.2) -> None:
        self._simulation, self._namespace, self._every = simulation, namespace, every
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.trouble: list[Exception] = []
        """Raised instead of what is asked for next."""
        self.dies: Exception | None = None
        self._names: set[str] = set()
        """Of pods that were told of, or made here: whoever looks seldom may never see one that was there."""
        self._units: dict[tuple[str, str], int] = {}
        """What nodes have, as was last told or written."""
        self._written: set[str] = set()
        """Nodes that were written to since they were last looked at: what they looked like then is not true."""

    async def events(self) -> AsyncIterator[Event | Looked]:
        nodes: dict[str, NodeSeen] = {}
        while True:
            if self.dies is not None:
                raise self.dies
            names = set(self._names)
            pods = (await self._simulation.ask("GET", self._pods))["items"]
            for pod in pods:
                yield pod_seen(pod)
            there = {pod["metadata"]["name"] for pod in pods}
            for name in sorted(names - there):
                yield PodGone(self._namespace, name)
            self._names = self._names - names | there
            self._written.clear()
            listed = (await self._simulation.ask("GET", "/api/v1/nodes"))["items"]
            seen = {node["metadata"]["name"]: node_seen(node) for node in listed}
            for name in sorted(nodes.keys() - seen.keys()):
                yield NodeGone(NodeName(name))
            for name in sorted(name for name in seen if seen[name] != nodes.get(name)):
                yield seen[name]
            nodes, now = seen, self._resources_of(listed)
            for node, key in sorted(self._units.keys() | now.keys()):
                if node not in self._written and self._units.get((node, key), 0) != now.get((node, key), 0):
                    self._units[node, key] = now.get((node, key), 0)
                    yield CapacitySeen(NodeName(node), ResourceKey(key), now.get((node, key), 0))
            yield Looked()
            await asyncio.sleep(self._every)

    async def _resources(self) -> dict[tuple[str, str], int]:
        return self._resources_of((await self._simulation.ask("GET", "/api/v1/nodes"))["items"])

    def _resources_of(self, nodes: list[Any]) -> dict[tuple[str, str], int]:
        return {
            (node["metadata"]["name"], key): count(ResourceKey(key), quantity)
            for node in nodes
            for key, quantity in node["status"]["allocatable"].items()
            if key.partition("/")[2].startswith(f"{self._namespace}.")
        }

    async def create(self, pod: Mapping[str, Any]) -> None:
        try:
            await self._simulation.ask("POST", self._pods, pod)
        except errors.Occupied as error:
            there = await self._simulation.ask("GET", f"{self._pods}/{pod['metadata']['name']}")
            if not pod["metadata"]["labels"].items() <= there["metadata"].get("labels", {}).items():
                raise Refused(str(error)) from error
        self._names.add(pod["metadata"]["name"])

    async def carry_out(self, change: Change | TaskChange) -> None:
        try:
            if self.trouble:
                raise self.trouble.pop(0)
            await self._send(change)
        except errors.Gone as error:
            raise Gone(str(error)) from error
        except errors.Occupied:
            # It has been made already.
            return
        except errors.Refused as error:
            raise Refused(str(error)) from error

    async def _send(self, change: Change | TaskChange) -> None:
        ask = self._simulation.ask
        match change:
            case CreateGhost(ghost):
                made = await ask("POST", self._pods, ghost_manifest(ghost))
                self._names.add(made["metadata"]["name"])
            case DeleteGhost(_, name, _):
                await ask("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})
            case EvictMember(namespace, name, uid):
                eviction: Any = {"metadata": {"name": name, "namespace": namespace}}
                eviction["deleteOptions"] = {"preconditions": {"uid": uid}}
                await ask("POST", f"{self._pods}/{name}/eviction", eviction)
            case CancelTask(_, name, uid):
                await self._cancel(name, uid)
            case StopTask(_, name, uid):
                await ask("DELETE", f"{self._pods}/{name}", {"preconditions": {"uid": uid}})
            case LaunchTask():
                raise AssertionError("it is created")
            case _:
                units = str(change.units) if isinstance(change, SetCapacity) else None
                said = {change.resource: units}
                status = {"status": {"capacity": said, "allocatable": said}}
                self._written.add(change.node)
                await ask("PATCH", f"/api/v1/nodes/{change.node}/status", status, content_type=MERGE_PATCH)
                self._written.add(change.node)
                self._units[change.node, change.resource] = int(units or 0)

    async def _cancel(self, name: str, uid: str) -> None:
        pod = await self._simulation.ask("GET", f"{self._pods}/{name}")
        if pod["metadata"]["uid"] != uid:
            return
        if pod["spec"].get("nodeName"):
            raise Refused("it is bound")
        seen = {"uid": uid, "resourceVersion": pod["metadata"]["resourceVersion"]}
        try:
            await self._simulation.ask("DELETE", f"{self._pods}/{name}", {"preconditions": seen})
        except errors.Occupied as error:
            raise TryAgain(str(error)) from error


LOST = TryAgain("no answer")
