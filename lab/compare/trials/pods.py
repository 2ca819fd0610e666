"""Pods: as their author writes them; the comparison's one client creates and deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec

from extender.kube.client.requests import METADATA_ONLY, TIMEOUT, Requests
from extender.kube.errors import Gone
from lab.compare.trials.outside import LABEL, NAMESPACE, PODS, pods_where
from lab.compare.trials.workloads import POOL, Ask

AT_ONCE = 16
"""Pods that the client creates at the same time, by every approach."""
WITHOUT_DELAY = b'{"gracePeriodSeconds":0}'
"""DeleteOptions."""
_EACH, _MOST = 0.02, 65.0
"""Seconds that the deletion of a gang may take for each of its members, and at most."""
Each = TypeVar("Each")

Manifest = dict[str, Any]


def manifest(ask: Ask, number: int, name: str = "") -> Manifest:
    """A member as its author writes it, without an approach; a pool restricts its nodes."""
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or f"{ask.name}-{number}", "namespace": NAMESPACE, "labels": {LABEL: ask.name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": resources_of(ask.requests),
                }
            ],
        },
    }
    if ask.pool:
        made["spec"]["nodeSelector"] = {POOL: ""}
    return made


def resources_of(asked: Mapping[str, str]) -> Manifest:
    """A container's resources. Kubernetes requires an equal limit for an extended resource."""
    extended = {name: value for name, value in asked.items() if "/" in name}
    return {"requests": dict(asked), **({"limits": extended} if extended else {})}


async def create(requests: Requests, pods: list[Manifest]) -> None:
    """Creates the pods in order, a few at a time."""

    async def post(body: bytes) -> None:
        await requests.request("POST", PODS, body, accept=METADATA_ONLY)

    await a_few_at_a_time(post, [msgspec.json.encode(pod) for pod in pods])


async def a_few_at_a_time(do: Callable[[Each], Awaitable[None]], each: Collection[Each]) -> None:
    """Calls `do` for each, begun in this order, at most `AT_ONCE` at a time."""
    left = iter(each)

    async def work() -> None:
        for one in left:
            await do(one)

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(each)))))


async def remove(requests: Requests, ask: Ask) -> None:
    """Deletes the gang's members by one call."""
    # kube-apiserver deletes a collection's objects one by one, and gives up after a minute.
    within = min(_MOST, TIMEOUT + _EACH * ask.size)
    await delete(requests, pods_where(labelSelector=f"{LABEL}={ask.name}"), within=within)


async def delete(requests: Requests, path: str, how: bytes = WITHOUT_DELAY, within: float = TIMEOUT) -> None:
    """Deletes the object if it exists. `how`: DeleteOptions as JSON. `within`: seconds."""
    try:
        await requests.request("DELETE", path, how, within=within)
    except Gone:
        return
