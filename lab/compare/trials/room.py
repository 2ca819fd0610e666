"""Room: pods on nodes that leave less of a cluster free.

Their creator binds them, without any scheduler. So the free room of a trial is the same for every approach, and the
cluster keeps its size. Either pods take all CPU of all but some nodes, or a trial lists the pods that exist when it
begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any

import msgspec

from extender.kube.client.requests import Requests, address
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.compare.trials.outside import NAMESPACE, PODS, pods_where
from lab.compare.trials.pods import a_few_at_a_time, create, delete, resources_of
from lab.compare.trials.polling import until
from lab.compare.trials.workloads import Standing

Taking = Callable[[int], None]
"""Called with the number of pods that come or go: thousands of them take a while."""
_LABEL = "compare.escher.dev/standing"
_ROOM, _TRIAL = "room", "trial"
_NODES = address("api", "v1", "nodes")
_EVERY, _WITHIN, _WITHIN_EACH = 0.25, 60.0, 0.1
"""Seconds until new pods run, and more for each: a busy machine starts twenty a second."""
SETTLE = 1.0
"""Seconds in which the watches of schedulers and service receive the last of them."""


class Room:
    """The taken part of a cluster, from one set-up to the next; only differences come and go."""

    def __init__(self, requests: Requests, taking: Taking) -> None:
        self._requests, self._taking = requests, taking
        self._taken: dict[str, str] = {}

    async def leave_free(self, pods: int | None, cpu: str) -> None:
        """Leaves room for `pods` pods of that CPU, rounded up to whole nodes; None: all nodes.

        Raises Late if the pods that take the rest do not start.
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
    """The CPU that each node offers, in the order of the list."""
    listed = msgspec.json.decode(await requests.request("GET", _NODES))
    return {node["metadata"]["name"]: node["status"]["allocatable"][CPU] for node in listed["items"]}


@asynccontextmanager
async def rooms(requests: Requests, taking: Taking) -> AsyncIterator[Room]:
    """Frees all of the cluster after the block, if the block raises nothing."""
    room = Room(requests, taking)
    yield room
    await room.leave_free(None, "")


def _of_room(node: str, cpu: str) -> Standing:
    return Standing(f"standing-{node}", node, {CPU: cpu}, inf)


@asynccontextmanager
async def standing(requests: Requests, pods: Sequence[Standing]) -> AsyncIterator[None]:
    """Runs the pods in the block; then removes them, unless it raises. Raises Late at the start."""
    if pods:
        await _place(requests, _TRIAL, pods)
    yield
    if pods:
        await _remove(requests, pods)


async def leave(requests: Requests, pod: Standing) -> None:
    """Deletes the pod."""
    await delete(requests, f"{PODS}/{pod.name}")


def taken_nodes(offers: Mapping[str, str], pods: int, cpu: str) -> dict[str, str]:
    """All nodes but the first ones, which have room for `pods` such pods, with their CPU."""
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
    # Not as a collection, whose objects kube-apiserver deletes in turn: thousands take longer than a call may.
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
