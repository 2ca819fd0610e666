"""Site: the cluster in which the works prepare objects, and the outside view of their pods.

Node labels and node status are written by PATCH, as a cluster's owner would do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from escher_k8s import AsyncEscher, NotFound
from extender.kube.client.connection import Connection
from extender.kube.client.requests import MERGE_PATCH, address
from extender.kube.errors import Gone
from lab.compare.trials.outside import is_turned_away
from lab.compare.trials.policies import put_in_force
from lab.controlplane.witness import Changing, Collection, Sighting, name_of
from loadtests.native_policies.work import BATCH, POD
from loadtests.shared.pods import PURE, Json, pod
from loadtests.shared.reading import node_of

NAMESPACE = "default"
PODS = address("api", "v1", "namespaces", NAMESPACE, "pods")
_PATIENCE = 15.0
_DELETED_NOW = b'{"gracePeriodSeconds":0}'


class Seen(NamedTuple):
    pod: str
    """The pod's name in its batch; "" if it is in no batch."""
    node: str
    tried: bool
    """Whether a scheduler has tried it without success."""


def _seen(found: Json) -> Seen:
    return Seen(found["metadata"].get("labels", {}).get(POD, ""), node_of(found), is_turned_away(found))


class Outside(Changing):
    """The batch's pods as this process's own watch shows them."""

    def __init__(self) -> None:
        super().__init__()
        self.bound_at: dict[str, float] = {}
        """When each pod was first seen bound, in that order."""
        self.nodes: dict[str, str] = {}
        self.tried: set[str] = set()
        self.pods = Collection(PODS, "Pod", self._see, read=_seen, identity=name_of, now=time.perf_counter)

    def forget(self) -> None:
        """Forgets what was seen of the last batch."""
        self.bound_at.clear()
        self.nodes.clear()
        self.tried.clear()

    def there(self) -> int:
        """Returns how many pods of batches exist."""
        return sum(bool(each.seen.pod) for each in self.pods.known.values())

    def _see(self, sighting: Sighting[Seen]) -> None:
        seen = sighting.seen
        if seen.pod and not sighting.gone:
            if seen.node:
                self.bound_at.setdefault(seen.pod, sighting.time)
                self.nodes.setdefault(seen.pod, seen.node)
            elif seen.tried:
                self.tried.add(seen.pod)
        self.has_changed()

    async def until_seen(self, holds: Callable[[], bool], what: str, within: float = _PATIENCE) -> None:
        """Waits until it holds. Raises Late."""
        await self.until(holds, what, within=within)


class RealSite:
    """Implements `Site`."""

    def __init__(self, connection: Connection, escher: AsyncEscher, outside: Outside) -> None:
        self.connection, self._escher, self._outside = connection, escher, outside

    async def _ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        said = None if body is None else msgspec.json.encode(body)
        answer: Json = msgspec.json.decode(
            await self.connection.request(method, path, said, content_type=content_type) or b"{}"
        )
        return answer

    async def label(self, nodes: Sequence[str], key: str, value: str | None) -> None:
        body = {"metadata": {"labels": {key: value}}}
        await asyncio.gather(*(self._ask("PATCH", address("api", "v1", "nodes", n), body, MERGE_PATCH) for n in nodes))

    async def offer(self, nodes: Sequence[str], resource: str, units: int | None) -> None:
        said = {resource: None if units is None else str(units)}
        body = {"status": {"capacity": said, "allocatable": said}}
        paths = [address("api", "v1", "nodes", node, "status") for node in nodes]
        await asyncio.gather(*(self._ask("PATCH", path, body, MERGE_PATCH) for path in paths))

    async def fill(self, name: str, node: str, **asks: Any) -> None:
        made = pod(name, PURE, **asks)
        made["spec"]["nodeName"] = node
        await self.make(PODS, made)

    async def empty(self, name: str) -> None:
        await self.connection.request("DELETE", f"{PODS}/{name}", _DELETED_NOW)

    async def make(self, path: str, body: Json) -> None:
        await self._ask("POST", path, body)

    async def patch(self, path: str, body: Json) -> None:
        await self._ask("PATCH", path, body, MERGE_PATCH)

    async def remove(self, path: str) -> None:
        try:
            await self._ask("DELETE", path)
        except Gone:
            return

    async def put_policy(self, name: str, kind: str, **parameters: Any) -> None:
        await put_in_force(self._escher, name, kind, parameters)

    async def drop_policy(self, name: str) -> None:
        try:
            await self._escher.delete_policy(name)
        except NotFound:
            return

    async def set_resource(self, name: str, units: int, nodes: str | Mapping[str, Any]) -> None:
        await self._escher.set_resource(name, units, node_spec=nodes)

    async def drop_resource(self, name: str) -> None:
        try:
            await self._escher.delete_resource(name)
        except NotFound:
            return

    async def end_batch(self) -> None:
        """Deletes all pods of batches and waits until they are gone. Raises Late."""
        await self.connection.request("DELETE", f"{PODS}?labelSelector={BATCH}%3D1", _DELETED_NOW)
        await self._outside.until_seen(lambda: not self._outside.there(), "the end of a batch", within=30)
