"""Room: pods that stand on nodes, so that less of a cluster is free.

They are bound by their creator, and no scheduler has a part in them. So the room that is short in a trial is the same
for every approach, and the cluster is as large as it is. Either all but a part of it is taken, by pods that leave their
nodes no CPU, or a trial says which pods are there when it begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any

import msgspec

from extender.kube.names import CPU
from extender.kube.quantities import count
from extender.kube.requests import Requests, address
from lab.compare.outside import NAMESPACE, PODS, pods_where
from lab.compare.pods import a_few_at_a_time, create, delete, resources_of
from lab.compare.polling import until
from lab.compare.workloads import Standing

Taking = Callable[[int], None]
"""Told how many pods are going to take a part of the cluster: thousands of them take a while."""
_LABEL = "compare.escher.dev/standing"
_ROOM, _TRIAL = "room", "trial"
_NODES = address("api", "v1", "nodes")
_EVERY, _WITHIN, _WITHIN_EACH = 0.25, 60.0, 0.1
"""Seconds within which pods that came are running, and more for each of them: a busy machine runs twenty a second."""
SETTLE = 1.0
"""The watches of schedulers and service have seen the last of them."""


class Room:
    """What is taken of a cluster from one set-up to the next; only what differs comes and goes."""

    def __init__(self, requests: Requests, taking: Taking) -> None:
        self._requests, self._taking = requests, taking
        self._taken: dict[str, str] = {}

    async def leave_free(self, pods: int | None, cpu: str) -> None:
        """There is room for so many pods of that CPU, rounded up to whole nodes; None: for all that the cluster has.

        Raises Late where the pods that take the rest do not come.
        """
        wanted = {} if pods is None else taken_nodes(await node_offers(self._requests), pods, cpu)
        going = [_of_room(node, self._taken[node]) for node in self._taken.keys() - wanted.keys()]
        coming = [_of_room(node, wanted[node]) for node in wanted if node not in self._taken]
        self._taken = wanted
        if going or coming:
            self._taking(len(going) + len(coming))
            await _remove(self._requests, going)
            await _place(self._requests, _ROOM, coming)


async def node_offers(requests: Requests) -> dict[str, str]:
    """The CPU that each node offers, in the order in which they are listed."""
    listed = msgspec.json.decode(await requests.request("GET", _NODES))
    return {node["metadata"]["name"]: node["status"]["allocatable"][CPU] for node in listed["items"]}


@asynccontextmanager
async def rooms(requests: Requests, taking: Taking) -> AsyncIterator[Room]:
    """All of the cluster is free again after the block."""
    room = Room(requests, taking)
    yield room
    await room.leave_free(None, "")


def _of_room(node: str, cpu: str) -> Standing:
    return Standing(f"standing-{node}", node, {CPU: cpu}, inf)


@asynccontextmanager
async def standing(requests: Requests, pods: Sequence[Standing]) -> AsyncIterator[None]:
    """They run when the block begins, and none is left after it. Raises Late where they do not come."""
    if pods:
        await _place(requests, _TRIAL, pods)
    yield
    if pods:
        await _remove(requests, pods)


async def leave(requests: Requests, pod: Standing) -> None:
    """It does not stand there any longer."""
    await delete(requests, f"{PODS}/{pod.name}")


def taken_nodes(offers: Mapping[str, str], pods: int, cpu: str) -> dict[str, str]:
    """All but the first nodes that have room for so many pods of that CPU, and the CPU that they offer."""
    left, taken = pods, dict[str, str]()
    for node, offered in offers.items():
        if left <= 0:
            taken[node] = offered
        left -= count(CPU, offered) // count(CPU, cpu)
    return taken


async def _place(requests: Requests, why: str, pods: Sequence[Standing]) -> None:
    await create(requests, [_manifest(why, pod) for pod in pods])
    others = pods_where(labelSelector=f"{_LABEL}={why}", fieldSelector="status.phase!=Running", limit=1)

    async def all_run() -> bool:
        return not msgspec.json.decode(await requests.request("GET", others))["items"]

    within = _WITHIN + _WITHIN_EACH * len(pods)
    await until(all_run, lambda: "a pod that takes room is not running", within=within, every=_EVERY)
    await asyncio.sleep(SETTLE)


async def _remove(requests: Requests, pods: Sequence[Standing]) -> None:
    # Not as a collection, which kube-apiserver deletes in turns: for thousands that takes longer than a call may.
    await a_few_at_a_time(partial(leave, requests), pods)
    await asyncio.sleep(SETTLE)


def _manifest(why: str, pod: Standing) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources_of(pod.requests)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": NAMESPACE, "labels": {_LABEL: why}},
        "spec": {"nodeName": pod.node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
