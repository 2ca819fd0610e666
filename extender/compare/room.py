"""Room: all but a part of a cluster is taken, by pods that stand on its nodes while a block lasts.

They are bound by their creator, and no scheduler has a part in them; their nodes have no CPU left. So the room that is
short in a trial is the same for every approach, and the cluster is as large as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from extender.compare.outside import NAMESPACE, PODS
from extender.compare.pods import create
from extender.controlplane.witness import Late
from extender.kube.names import CPU
from extender.kube.quantities import count
from extender.kube.requests import Requests, address

_LABEL = "compare.escher.dev/standing"
_SELECTED = f"{PODS}?labelSelector={_LABEL.replace('/', '%2F')}"
_NOT_RUNNING = f"{_SELECTED}&fieldSelector=status.phase%21%3DRunning&limit=1"
_NODES = address("api", "v1", "nodes")
_EVERY, _WITHIN = 0.25, 120.0
SETTLE = 1.0
"""The watches of schedulers and service have seen the last of them."""


@asynccontextmanager
async def room_for(requests: Requests, pods: int | None, cpu: str) -> AsyncIterator[None]:
    """There is room for so many pods of that CPU, rounded up to whole nodes, while the block lasts; None: all there is.

    Raises Late where the pods that take the rest do not come, or do not go.
    """
    if pods is None:
        yield
        return
    taken = taken_nodes(await node_offers(requests), pods, cpu)
    async with standing(requests, taken):
        yield


@asynccontextmanager
async def standing(requests: Requests, taken: Mapping[str, str]) -> AsyncIterator[None]:
    """On each of these nodes a pod stands that takes so much CPU. Raises Late where they do not come, or do not go."""
    await create(requests, [_standing(node, taken[node]) for node in taken])
    try:
        await _until_none(requests, _NOT_RUNNING, "a pod that takes a node is not running")
        await asyncio.sleep(SETTLE)
        yield
    finally:
        await requests.request("DELETE", _SELECTED, b'{"gracePeriodSeconds":0}')
        await _until_none(requests, f"{_SELECTED}&limit=1", "a pod that took a node is still there")
        await asyncio.sleep(SETTLE)


async def node_offers(requests: Requests) -> dict[str, str]:
    """The CPU that each node offers, in the order in which they are listed."""
    listed = msgspec.json.decode(await requests.request("GET", _NODES))
    return {node["metadata"]["name"]: node["status"]["allocatable"][CPU] for node in listed["items"]}


def taken_nodes(offers: Mapping[str, str], pods: int, cpu: str) -> dict[str, str]:
    """All but the first nodes that have room for so many pods of that CPU, and the CPU that they offer."""
    left, taken = pods, dict[str, str]()
    for node, offered in offers.items():
        if left <= 0:
            taken[node] = offered
        left -= count(CPU, offered) // count(CPU, cpu)
    return taken


def _standing(node: str, cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {CPU: cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"standing-{node}", "namespace": NAMESPACE, "labels": {_LABEL: ""}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


async def _until_none(requests: Requests, path: str, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + _WITHIN
    while msgspec.json.decode(await requests.request("GET", path))["items"]:
        if asyncio.get_running_loop().time() > deadline:
            raise Late(what)
        await asyncio.sleep(_EVERY)
