"""Unsafe: a gang in planned extended resources without ghosts, as warning and watcher test.

The application reads the free room, plans its gang by first fit, and creates the members. Only these may use the
planned room, but nothing holds it meanwhile. If two gangs are planned at the same moment, both count on the same room.
Then members of both are placed, and neither gang is whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from extender.adapters.kubernetes.writers.writers import ApiNodeStatusWriter
from extender.esl import Approach
from extender.esl.gangs.gang_spec import APPLICATION_DOMAIN
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone
from extender.kube.names import CPU, NodeName, ResourceKey
from extender.kube.quantities import count
from lab.compare.trials.outside import NAMESPACE, cpu_of
from lab.compare.trials.pods import Manifest, create, manifest, remove
from lab.compare.trials.room import node_offers
from lab.compare.trials.workloads import Ask

_ALL_PODS = address("api", "v1", "pods")
_ENDED = ("Succeeded", "Failed")
_LOOKS_EVERY = 0.25


class Unsafe:
    """A `Way`. Its plans are by CPU alone."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._nodes = ApiNodeStatusWriter(requests)
        self._planned: dict[str, Counter[NodeName]] = {}
        """Members by node, by gang."""

    async def prepare(self, ask: Ask) -> None:
        return

    async def submit(self, ask: Ask) -> None:
        await self._place(ask, [manifest(ask, number) for number in range(ask.size)])

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        await self._place(ask, [manifest(ask, number, name)])

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)
        key = _key(ask)
        for node in self._planned.pop(ask.name, ()):
            await self._advertise(node, {}, [key])

    async def _place(self, ask: Ask, members: list[Manifest]) -> None:
        """Waits until there is room for all members, then creates them."""
        cpu, key = count(CPU, ask.requests[CPU]), _key(ask)
        # Others may take this room before it is used: that is the fault of this approach.
        while True:
            plan = first_fit(await self._free(), cpu, len(members))
            if plan is not None:
                break
            await asyncio.sleep(_LOOKS_EVERY)
        planned = self._planned.setdefault(ask.name, Counter())
        planned.update(plan)
        await asyncio.gather(*(self._advertise(node, {key: planned[node]}, ()) for node in set(plan)))
        for member in members:
            member["spec"]["schedulerName"] = Approach.EXTENDED_RESOURCES.value
            resources = member["spec"]["containers"][0]["resources"]
            resources["requests"] |= {key: "1"}
            resources["limits"] = {key: "1"}
        await create(self._requests, members)

    async def _free(self) -> dict[NodeName, int]:
        offers, listed = await asyncio.gather(node_offers(self._requests), self._requests.request("GET", _ALL_PODS))
        free = {NodeName(node): count(CPU, offered) for node, offered in offers.items()}
        for pod in msgspec.json.decode(listed)["items"]:
            node = NodeName(pod["spec"].get("nodeName", ""))
            if node in free and pod["status"].get("phase") not in _ENDED:
                free[node] -= cpu_of(pod)
        return free

    async def _advertise(self, node: NodeName, units: Mapping[ResourceKey, int], absent: Iterable[ResourceKey]) -> None:
        try:
            await self._nodes.advertise(node, units, absent)
        except Gone:
            # The node is gone, and its resources with it.
            return


def first_fit(free: Mapping[NodeName, int], each: int, many: int) -> list[NodeName] | None:
    """The nodes of `many` pods of `each` CPU, one for each pod; None if not all have room."""
    places = [node for node, left in free.items() for _ in range(left // each)]
    return places[:many] if len(places) >= many else None


def _key(ask: Ask) -> ResourceKey:
    return ResourceKey(f"{APPLICATION_DOMAIN}/{NAMESPACE}.{ask.name}")
