"""Chosen nodes in a whole cluster: what stands in the objects is enough for the next life to move nothing."""

from __future__ import annotations

import asyncio

import pytest

from extender.app.contracts.api import ResourceState, SetResource
from extender.app.contracts.ports import NodeChoice
from extender.core.names import EphemeralName
from kubesim.kinds import POD
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.builders import units
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio
OBJECTS = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
FIVE_CPU = NodeChoice(available=units(cpu=5000), limit=1)
MERGE = "application/merge-patch+json"


async def _set(simulation: Simulation, capacity: int = 4, choice: NodeChoice = FIVE_CPU) -> ResourceState:
    name = EphemeralName("default", "r")
    wish = SetResource(name=name, capacity=capacity, choice=choice, ttl_seconds=600)
    return await simulation.application.management.resources.set_resource(wish)


async def _use(simulation: Simulation, key: str) -> None:
    """A pod of its own takes what was available on the chosen node."""
    made = pod("user", cpu=8)
    made["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "8", f"escher.dev/default.{key}": "1"},
        "limits": {f"escher.dev/default.{key}": "1"},
    }
    await simulation.create(made, POD)
    await until(lambda: bool(simulation.cluster.api.store.list(POD, "default")[0]["spec"].get("nodeName")))
    await asyncio.sleep(1)


async def test_a_call_that_is_repeated_in_the_next_life_moves_nothing() -> None:
    async with Simulation(nodes=3) as simulation:
        first = await _set(simulation)
        await _use(simulation, "r")
        assert (await _set(simulation)).nodes == first.nodes
        simulation.kill()
        await simulation.restart()
        again = await _set(simulation)
        assert again.nodes == first.nodes
        assert again.expires_at is not None
        assert first.expires_at is not None
        assert again.expires_at > first.expires_at
        assert simulation.application.scheduler.cache.violations() == []


async def test_an_expiry_that_people_edit_while_nobody_looks_moves_nothing() -> None:
    async with Simulation(nodes=3) as simulation:
        spec = {"capacity": 4, "nodeSpec": {"available": {"cpu": 5}}, "numNodes": 1}
        manifest = {
            "apiVersion": "escher.dev/v1alpha1",
            "kind": "EphemeralResource",
            "metadata": {"name": "k"},
            "spec": spec,
        }
        await simulation.ask("POST", OBJECTS, manifest)
        await asyncio.sleep(1)
        chosen = (await simulation.ask("GET", f"{OBJECTS}/k"))["status"]["nodes"]
        assert len(chosen) == 1
        await _use(simulation, "k")
        simulation.kill()
        later = {"spec": {"expiresAt": "2099-01-01T00:00:00Z"}}
        await simulation.ask("PATCH", f"{OBJECTS}/k", later, content_type=MERGE)
        await simulation.restart()
        await asyncio.sleep(100)
        status = (await simulation.ask("GET", f"{OBJECTS}/k"))["status"]
        assert (status["nodes"], status["observedGeneration"]) == (chosen, 2)
        moved = {"spec": {"nodeSpec": {"available": None, "nodeName": "node-2"}, "capacity": 3}}
        await simulation.ask("PATCH", f"{OBJECTS}/k", moved, content_type=MERGE)
        await asyncio.sleep(1)
        assert (await simulation.ask("GET", f"{OBJECTS}/k"))["status"]["nodes"] == {"node-2": 3}
