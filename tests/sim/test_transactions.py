"""Transactions over several objects on the embedded cluster: the service is killed in the midst of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.app.management import SetResource, Transact
from extender.app.ports import NodeChoice
from extender.core.names import EphemeralName
from extender.sim.kinds import NODE
from extender.simulation import Simulation

pytestmark = pytest.mark.anyio
OBJECTS = "/apis/escher.dev/v1alpha1/ephemeralresources"
BEFORE = {"default/changed": 1, "default/gone": 2}
AFTER = {"default/changed": 5, "default/made": 3, "kube-public/made": 4}


def wish(namespace: str, name: str, capacity: int) -> SetResource:
    return SetResource(name=EphemeralName(namespace, name), capacity=capacity, choice=NodeChoice())


WISHES = [
    wish("default", "made", 3),
    wish("default", "changed", 5),
    wish("default", "gone", 0),
    wish("kube-public", "made", 4),
]


async def objects(simulation: Simulation) -> dict[str, int]:
    """Units on each node, by object; 0 for one without nodes."""
    found: list[dict[str, Any]] = (await simulation.ask("GET", OBJECTS))["items"]
    return {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": max(each["spec"]["nodes"].values(), default=0)
        for each in found
    }


def stated(simulation: Simulation) -> list[dict[str, int]]:
    """What each node says of our domain, by object."""
    nodes = simulation.cluster.api.store.list(NODE, "")
    return [
        {
            key.removeprefix("escher.dev/").replace(".", "/"): int(units)
            for key, units in each["status"]["capacity"].items()
            if key.startswith("escher.dev/")
        }
        for each in nodes
    ]


@pytest.mark.parametrize("killed_after", [milliseconds / 1000 for milliseconds in range(1, 140, 6)])
async def test_killed_at_any_moment_all_of_it_is_in_force_after_the_restart_or_none(killed_after: float) -> None:
    async with Simulation(nodes=2, latency=0.02) as simulation:
        for name, units in BEFORE.items():
            await simulation.application.management.set_resource(wish("default", name.partition("/")[2], units))
        await asyncio.sleep(20)
        call = asyncio.ensure_future(simulation.application.management.transact(Transact(operations=WISHES)))
        await asyncio.sleep(killed_after)
        answered = call.done() and call.result().committed == [0, 1, 2, 3]
        call.cancel()
        await simulation.restart()
        await asyncio.sleep(30)
        now = await objects(simulation)
        assert now in ([AFTER] if answered else [AFTER, BEFORE])
        assert stated(simulation) == [now, now]
        assert simulation.application.resources.intents.unfinished() == 0
        assert simulation.application.keeper.violations() == []


async def test_undisturbed_it_is_in_force_when_it_is_answered() -> None:
    async with Simulation(nodes=2, latency=0.02) as simulation:
        for name, units in BEFORE.items():
            await simulation.application.management.set_resource(wish("default", name.partition("/")[2], units))
        outcome = await simulation.application.management.transact(Transact(operations=WISHES))
        assert outcome.committed == [0, 1, 2, 3]
        assert await objects(simulation) == AFTER
        assert stated(simulation) == [AFTER, AFTER]
