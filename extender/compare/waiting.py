"""Waiting: other gangs that wait for room all the while, so that each pod that goes is news for them.

Each waits on a node of its own, half of which is taken: one of its two members has room there, both have not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import msgspec

from extender.compare.approaches import member
from extender.compare.outside import LABEL, PODS
from extender.compare.pods import create, remove
from extender.compare.vocabulary import BASE, EXTENDER
from extender.compare.workloads import Ask
from extender.controlplane.witness import Late
from extender.kube.names import CPU
from extender.kube.quantities import count
from extender.kube.requests import Requests, address

_NODES = address("api", "v1", "nodes")
_MEMBERS = 2
_EVERY, _WITHIN = 0.25, 60.0


@asynccontextmanager
async def gangs_waiting(requests: Requests, gangs: int) -> AsyncIterator[None]:
    """So many wait while the block lasts, by the extender. Raises Late where they are not turned away."""
    if not gangs:
        yield
        return
    listed = msgspec.json.decode(await requests.request("GET", _NODES))["items"]
    taking, waiting = [], []
    for number, node in enumerate(islice(listed, gangs)):
        cpu, there = count(CPU, node["status"]["allocatable"][CPU]), {"nodeName": node["metadata"]["name"]}
        taking.append((Ask(f"takes-{number}", 1, {CPU: f"{cpu // 2}m"}), there))
        host = {"nodeSelector": {"kubernetes.io/hostname": node["metadata"]["name"]}}
        waiting.append((Ask(f"waits-{number}", _MEMBERS, {CPU: f"{cpu * 3 // 8}m"}), host))
    try:
        # The ones that take room are bound by their creator, so that it is taken when the others come.
        for approach, asked in ((BASE, taking), (EXTENDER, waiting)):
            pods = [(member(approach, ask, number), where) for ask, where in asked for number in range(ask.size)]
            for pod, where in pods:
                pod["spec"] |= where
            await create(requests, [pod for pod, _ in pods])
        await _until_turned_away(requests, {ask.name for ask, _ in waiting})
        yield
    finally:
        await asyncio.gather(*(remove(requests, ask) for ask, _ in (*taking, *waiting)))


async def _until_turned_away(requests: Requests, gangs: set[str]) -> None:
    """kube-scheduler has said of all their members that they cannot be placed now."""
    deadline = asyncio.get_running_loop().time() + _WITHIN
    while True:
        listed = msgspec.json.decode(await requests.request("GET", PODS))["items"]
        away = sum(_is_turned_away(pod) for pod in listed if pod["metadata"].get("labels", {}).get(LABEL) in gangs)
        if away == _MEMBERS * len(gangs):
            return
        if asyncio.get_running_loop().time() > deadline:
            raise Late(f"of {_MEMBERS * len(gangs)} pods that are to wait for room, {away} were turned away")
        await asyncio.sleep(_EVERY)


def _is_turned_away(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
