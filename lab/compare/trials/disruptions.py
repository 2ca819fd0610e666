"""Losses: deletes a member or a node while a gang is placed, once the watcher sees it so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from extender.core.names import DOMAIN
from extender.kube.client.requests import Requests, address
from lab.compare.trials.approaches import Way
from lab.compare.trials.outside import LABEL, PODS, Watched, pods_where
from lab.compare.trials.pods import WITHOUT_DELAY, delete
from lab.compare.trials.workloads import Ask, Loss
from lab.controlplane.nodes import node

_NODES = address("api", "v1", "nodes")
_AWAY = 1.0
"""Seconds after which a lost node is back."""
_WITHIN = 600.0
"""Seconds; longer than any trial, because the end of the trial ends the wait."""


class Losses:
    """The losses of all trials, one after the other. No pod is lost twice."""

    def __init__(self, requests: Requests, watched: Watched) -> None:
        self._requests, self._watched = requests, watched
        self._lost: set[str] = set()

    async def suffer(self, loss: Loss, ask: Ask, way: Way) -> None:
        """Carries out the loss, replaces the lost members, and waits until all members run."""
        await self._until(lambda: len(self._seen(loss)) >= loss.after)
        pod = self._seen(loss)[loss.after - 1]
        if loss.what == "node":
            await self._lose_node(self._watched.pods[pod].node, ask, way)
        else:
            await delete(self._requests, f"{PODS}/{pod}")
            await self._replace([pod], ask, way)
        await self._until(lambda: self._watched.running(ask.name) >= ask.size)

    def _seen(self, loss: Loss) -> list[str]:
        """The pods created, or bound, so far, in that order."""
        pods = self._watched.of(loss.gang)
        if loss.seen == "created":
            return list(pods)
        return [name for _, name in sorted((pod.bound, name) for name, pod in pods.items() if pod.bound is not None)]

    async def _lose_node(self, name: str, ask: Ask, way: Way) -> None:
        """Deletes the node and its pods, as the node and pod controllers do after a while."""
        found = msgspec.json.decode(await self._requests.request("GET", f"{_NODES}/{name}"))
        await delete(self._requests, f"{_NODES}/{name}")
        # The API server has the current pods: the watcher may not have seen them there yet, or have seen their end.
        path = pods_where(fieldSelector=f"spec.nodeName={name}")
        ended = msgspec.json.decode(await self._requests.request("DELETE", path, WITHOUT_DELAY))["items"]
        members = [each["metadata"]["name"] for each in ended if _is_of(ask, each)]
        await self._replace(members, ask, way)
        try:
            await asyncio.sleep(_AWAY)
        finally:
            # Also if the trial is given up meanwhile, because the next trial needs the node.
            await self._requests.request("POST", _NODES, msgspec.json.encode(as_new(found)))

    async def _replace(self, pods: Iterable[str], ask: Ask, way: Way) -> None:
        for pod in pods:
            if pod not in self._lost:
                self._lost.add(pod)
                number = int(pod.removeprefix(f"{ask.name}-").partition("-")[0])
                await way.replace(ask, number, f"{ask.name}-{number}-{len(self._lost)}")

    async def _until(self, holds: Callable[[], bool]) -> None:
        await self._watched.until(holds, "a loss", within=_WITHIN)


def _is_of(ask: Ask, pod: dict[str, Any]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(LABEL) == ask.name)


def as_new(found: dict[str, Any]) -> dict[str, Any]:
    """The node as its kubelet creates it: without later changes."""
    capacity = found["status"]["capacity"].items()
    offered = {key: value for key, value in capacity if not key.partition("/")[0].endswith(DOMAIN)}
    return node(found["metadata"]["name"], offered, labels=found["metadata"]["labels"])
