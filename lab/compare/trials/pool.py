"""Pool: labels the nodes that a set-up may use, and cordons all others, while a block lasts.

So policies that select nodes by labels and policies that use all open nodes have the same nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from typing import Any

import msgspec

from extender.kube.client.requests import MERGE_PATCH, Requests, address
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.compare.trials.pods import a_few_at_a_time
from lab.compare.trials.room import SETTLE, node_offers, standing
from lab.compare.trials.workloads import POOL, Shape, Standing


@asynccontextmanager
async def pool_for(requests: Requests, shape: Shape) -> AsyncIterator[None]:
    """Raises Late if the pods that fill part of an uneven pool do not start."""
    if shape.pool is None:
        yield
        return
    offers = await node_offers(requests)
    inside, outside = list(offers)[: shape.pool], list(offers)[shape.pool :]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_patch, requests, outside, {"spec": {"unschedulable": None}})
        stack.push_async_callback(_patch, requests, inside, {"metadata": {"labels": {POOL: None}}})
        await _patch(requests, inside, {"metadata": {"labels": {POOL: ""}}})
        await _patch(requests, outside, {"spec": {"unschedulable": True}})
        if shape.uneven:
            half = [
                Standing(f"pool-{node}", node, {CPU: f"{count(CPU, offers[node]) // 2}m"}, inf) for node in inside[::2]
            ]
            await stack.enter_async_context(standing(requests, half))
        await asyncio.sleep(SETTLE)
        yield


async def _patch(requests: Requests, nodes: Collection[str], change: dict[str, Any]) -> None:
    body = msgspec.json.encode(change)

    async def patch(node: str) -> None:
        await requests.request("PATCH", address("api", "v1", "nodes", node), body, content_type=MERGE_PATCH)

    await a_few_at_a_time(patch, nodes)
