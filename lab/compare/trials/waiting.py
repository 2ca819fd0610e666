"""Waiting: other gangs that wait for room all the time, so that each pod's end concerns them.

Each waits on a node of its own, half taken: one of its two members has room there, both have not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from extender.kube.client.requests import Requests
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.compare.trials.approaches import member
from lab.compare.trials.outside import LABEL, PODS, is_turned_away
from lab.compare.trials.pods import create, remove
from lab.compare.trials.polling import until
from lab.compare.trials.room import node_offers
from lab.compare.trials.workloads import Ask
from lab.compare.vocabulary import BASE, EXTENDER

_MEMBERS = 2
_EVERY, _WITHIN = 0.25, 60.0


@asynccontextmanager
async def gangs_waiting(requests: Requests, gangs: int) -> AsyncIterator[None]:
    """`gangs` gangs wait during the block, by the extender. Raises Late if they do not."""
    if not gangs:
        yield
        return
    offers = await node_offers(requests)
    taking, waiting = [], []
    for number, node in enumerate(islice(offers, gangs)):
        cpu, there = count(CPU, offers[node]), {"nodeName": node}
        taking.append((Ask(f"takes-{number}", 1, {CPU: f"{cpu // 2}m"}), there))
        host = {"nodeSelector": {"kubernetes.io/hostname": node}}
        waiting.append((Ask(f"waits-{number}", _MEMBERS, {CPU: f"{cpu * 3 // 8}m"}), host))
    try:
        # Their creator binds the pods that take room, so that it is taken when the others come.
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
    """Waits until kube-scheduler has reported that none of their members can be placed now."""
    wanted, away = _MEMBERS * len(gangs), 0

    async def all_wait() -> bool:
        nonlocal away
        listed = msgspec.json.decode(await requests.request("GET", PODS))["items"]
        away = sum(is_turned_away(pod) for pod in listed if pod["metadata"].get("labels", {}).get(LABEL) in gangs)
        return away == wanted

    missing = "of {} pods that are to wait for room, {} were turned away"
    await until(all_wait, lambda: missing.format(wanted, away), within=_WITHIN, every=_EVERY)
