"""Claims: sets the few ephemeral resources that pods of a workload request, while a block lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from escher_k8s import AsyncEscher
from extender.kube.client.requests import Requests, address
from lab.compare.trials.outside import NAMESPACE
from lab.compare.trials.workloads import CLAIMED, UNITS, claim_name

_NODES = address("api", "v1", "nodes", query={"limit": CLAIMED})


@asynccontextmanager
async def claimable(service_url: str, requests: Requests) -> AsyncIterator[None]:
    """Sets each resource on one of the first nodes for the block, and deletes it afterwards."""
    nodes = msgspec.json.decode(await requests.request("GET", _NODES))["items"]
    async with AsyncEscher(service_url, namespace=NAMESPACE) as escher:
        for number in range(CLAIMED):
            node = nodes[number % len(nodes)]["metadata"]["name"]
            await escher.set_resource(claim_name(number), UNITS, node_spec=node)
        try:
            yield
        finally:
            for number in range(CLAIMED):
                await escher.delete_resource(claim_name(number))
