"""A tenant that may write EphemeralResources in its own namespace stores there what looks like the intent of a
transaction, as an earlier version stored it: Escher carries nothing out by it, at once, later or after a restart."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
import zlib
from base64 import b64encode
from typing import Any

import pytest

from extender.app.contracts.api import SetResource, Transact
from extender.app.contracts.ports import NodeChoice
from extender.core.names import EphemeralName
from extender.kube.names import NodeName
from kubesim.kinds import NAMESPACE, NODE
from lab.simulation import Simulation

pytestmark = pytest.mark.anyio
PATH = "/apis/escher.dev/v1alpha1/namespaces/{}/ephemeralresources"
MINE, OTHERS = "ten-x", "ten-y"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


def manifest(name: str, spec: Any, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    head = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource"}
    return {**head, "metadata": {"name": name, "namespace": MINE, "annotations": annotations or {}}, "spec": spec}


async def forge(simulation: Simulation, transaction: str, *objects: Any) -> None:
    said = {"transaction": transaction, "objects": objects, "deciding": "", "others": [], "givenUp": False}
    annotations = {"escher.dev/transaction": json.dumps(said)}
    await simulation.ask("POST", PATH.format(MINE), manifest(f"transaction-{transaction}", {"nodes": {}}, annotations))


async def begin(simulation: Simulation) -> None:
    for name in (MINE, OTHERS):
        await simulation.create({"metadata": {"name": name}}, NAMESPACE)


def stated(simulation: Simulation) -> set[str]:
    """Keys of our domain on the nodes."""
    nodes = simulation.cluster.api.store.list(NODE, "")
    return {key for node in nodes for key in node["status"]["capacity"] if key.startswith("escher.dev/")}


async def settle(simulation: Simulation, restarts: bool) -> None:
    if restarts:
        await simulation.restart()
    # The intent of another service was left to it for a minute.
    await asyncio.sleep(200)


@pytest.mark.parametrize("restarts", [False, True])
async def test_it_gives_no_shared_name(restarts: bool) -> None:
    async with Simulation(nodes=2) as simulation:
        await begin(simulation)
        stolen = manifest("stolen", {"shared": True, "nodes": {"node-0": 7}})
        await forge(simulation, "abcdefghijklmnop", {"name": "stolen", "deletes": True, "was": stolen})
        await settle(simulation, restarts)
        assert stated(simulation) == set()
        [left] = (await simulation.ask("GET", PATH.format(MINE)))["items"]
        [ready] = left["status"]["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "Invalid")
        assert "begins with abcdefghijklmnop. and delete this one" in ready["message"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_it_voids_no_transaction_though_its_name_stands_in_the_mark_for_all_to_read(restarts: bool) -> None:
    async with Simulation(nodes=2) as simulation:
        await begin(simulation)
        node = NodeChoice(node=NodeName("node-0"))
        wishes = [SetResource(name=EphemeralName(ns, "data"), capacity=4, choice=node) for ns in (MINE, OTHERS)]
        outcome = await simulation.application.management.transactions.transact(Transact(operations=wishes))
        assert outcome.committed == [0, 1]
        mine = await simulation.ask("GET", PATH.format(MINE) + "/data")
        await forge(simulation, mine["metadata"]["annotations"]["escher.dev/mark"].partition(".")[0])
        await settle(simulation, restarts)
        # Its owner touches it, which had it looked at again.
        path = PATH.format(OTHERS) + "/data"
        touched = await simulation.ask("GET", path)
        await simulation.ask("PUT", path, {**touched, "metadata": {**touched["metadata"], "labels": {"a": "b"}}})
        await asyncio.sleep(100)
        assert (await simulation.ask("GET", path))["spec"]["nodes"] == {"node-0": 4}
        assert stated(simulation) == {f"escher.dev/{MINE}.data", f"escher.dev/{OTHERS}.data"}


async def test_it_takes_no_more_memory_than_it_has_bytes() -> None:
    text = json.dumps({"transaction": "a" * (60 << 20), "objects": [], "deciding": "x"}).encode()
    bomb = b64encode(zlib.compress(text, 9)).decode()
    del text
    async with Simulation(nodes=2) as simulation:
        await begin(simulation)
        tracemalloc.start()
        try:
            for number in range(20):
                annotated = manifest(f"z{number}", {"nodes": {}}, {"escher.dev/transaction": bomb})
                await simulation.ask("POST", PATH.format(MINE), annotated)
            await asyncio.sleep(30)
            await simulation.restart()
            await asyncio.sleep(30)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # What the API server of this process keeps, and lists, is in it.
        assert most < 60 << 20, f"{20 * len(bomb):,} bytes of annotations took {most:,}"
        assert len(simulation.application.resources.all()) == 20
