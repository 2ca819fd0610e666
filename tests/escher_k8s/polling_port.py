"""A cluster port as an application might write one: it looks at pods and nodes every so often, and sends requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from escher_k8s.esl import (
    CapacitySeen,
    Change,
    CreateGhost,
    DeleteGhost,
    Event,
    EvictMember,
    Gone,
    PodGone,
    Refused,
    SetCapacity,
    TryAgain,
    ghost_manifest,
    pod_seen,
)
from extender.kube import errors
from extender.kube.names import NodeName, ResourceKey
from extender.simulation import Simulation

MERGE_PATCH = "application/merge-patch+json"


class PollingPort:
    """Implements `ClusterPort` on the API server of a simulation."""

    def __init__(self, simulation: Simulation, namespace: str, every: float = 0.2) -> None:
        self._simulation, self._namespace, self._every = simulation, namespace, every
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.trouble: list[Exception] = []
        """Raised instead of what is asked for next."""
        self.dies: Exception | None = None
        self._names: set[str] = set()
        """Pods that were seen, or made: one that is gone before it was seen is told of too."""

    async def events(self) -> AsyncIterator[Event]:
        units: dict[tuple[str, str], int] = {}
        while True:
            if self.dies is not None:
                raise self.dies
            before = set(self._names)
            pods = (await self._simulation.ask("GET", self._pods))["items"]
            for pod in pods:
                yield pod_seen(pod)
            there = {pod["metadata"]["name"] for pod in pods}
            for name in sorted(before - there):
                yield PodGone(self._namespace, name)
            self._names = there | (self._names - before)
            now = await self._resources()
            for node, key in sorted(units.keys() | now.keys()):
                if units.get((node, key), 0) != now.get((node, key), 0):
                    yield CapacitySeen(NodeName(node), ResourceKey(key), now.get((node, key), 0))
            units = now
            await asyncio.sleep(self._every)

    async def _resources(self) -> dict[tuple[str, str], int]:
        nodes = (await self._simulation.ask("GET", "/api/v1/nodes"))["items"]
        return {
            (node["metadata"]["name"], key): int(quantity)
            for node in nodes
            for key, quantity in node["status"]["allocatable"].items()
            if key.partition("/")[2].startswith(f"{self._namespace}.")
        }

    async def carry_out(self, change: Change) -> None:
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

    async def _send(self, change: Change) -> None:
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
            case _:
                units = str(change.units) if isinstance(change, SetCapacity) else None
                said = {change.resource: units}
                status = {"status": {"capacity": said, "allocatable": said}}
                await ask("PATCH", f"/api/v1/nodes/{change.node}/status", status, content_type=MERGE_PATCH)


LOST = TryAgain("no answer")
