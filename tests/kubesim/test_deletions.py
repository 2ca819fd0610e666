"""Deletion with finalizers, and namespaces that end, on the embedded cluster and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from extender.kube.client.requests import MERGE_PATCH
from kubesim.kinds import NAMESPACE, NODE, Json
from lab.simulation import Simulation

pytestmark = pytest.mark.anyio
R = "/v1/namespaces/team/resources/r"
WISH = {"capacity": 4, "node_spec": {}}
OBJECTS = "/apis/escher.dev/v1alpha1/namespaces/team/ephemeralresources"


@dataclass
class Cluster:
    simulation: Simulation
    client: httpx.AsyncClient

    async def keep(self, *finalizers: str) -> None:
        patch = {"metadata": {"finalizers": list(finalizers)}}
        await self.simulation.ask("PATCH", f"{OBJECTS}/r", patch, content_type=MERGE_PATCH)

    def stated(self) -> list[str | None]:
        """What each node says of `escher.dev/team.r`."""
        nodes = self.simulation.cluster.api.store.list(NODE, "")
        return [each["status"]["capacity"].get("escher.dev/team.r") for each in nodes]

    async def put(self) -> httpx.Response:
        return await self.client.put(R, json=WISH)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes, and a namespace with `r`, which has a finalizer."""
    async with Simulation(nodes=2) as simulation:
        service = simulation.application
        transport = httpx.ASGITransport(create_api(service.management, service.ready, CollectorRegistry()))
        async with httpx.AsyncClient(transport=transport, base_url="http://escher.invalid") as client:
            made = Cluster(simulation, client)
            await simulation.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, NAMESPACE)
            assert (await made.put()).status_code == 200
            await made.keep("x.io/keep")
            await asyncio.sleep(10)
            yield made
        assert simulation.application.scheduler.cache.violations() == []


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    said: Json = answer.json()
    return answer.status_code, said["field"], said["detail"]


async def test_what_a_finalizer_holds_is_on_no_node_and_can_be_set_once_it_is_gone(cluster: Cluster) -> None:
    assert cluster.stated() == ["4", "4"]
    left = await cluster.client.delete(R)
    assert (left.status_code, left.json()["nodes"], left.json()["finalizers"]) == (202, {}, ["x.io/keep"])
    assert cluster.stated() == [None, None]
    shown = await cluster.client.get(R)
    assert shown.json()["problem"] == "team/r is being deleted, and its finalizer x.io/keep holds it"
    for _ in range(2):
        status, field, detail = problem(await cluster.put())
        assert (status, field) == (409, "name")
        assert "x.io/keep" in detail
        await asyncio.sleep(3600)
    cluster.simulation.hold_watches()
    await cluster.keep()
    answer = await cluster.put()
    assert (answer.status_code, len(answer.json()["nodes"])) == (200, 2)
    cluster.simulation.release_watches()
    await asyncio.sleep(10)
    assert cluster.stated() == ["4", "4"]
    assert (await cluster.client.delete(R)).status_code == 204
    assert (await cluster.client.get(R)).status_code == 404


async def test_a_dry_run_of_a_deletion_deletes_nothing(cluster: Cluster) -> None:
    would = await cluster.client.delete(R + "?dryRun=All")
    assert (would.status_code, would.json()["finalizers"]) == (202, ["x.io/keep"])
    await cluster.keep()
    assert (await cluster.client.delete(R + "?dryRun=All")).status_code == 204
    await asyncio.sleep(10)
    assert cluster.stated() == ["4", "4"]
    assert (await cluster.client.get(R)).json()["problem"] == ""


async def test_a_namespace_that_ends_refuses_what_is_new_and_leaves_nothing(cluster: Cluster) -> None:
    await cluster.simulation.ask("DELETE", NAMESPACE.path("", "team"))
    await asyncio.sleep(5)
    assert cluster.stated() == [None, None]
    new = await cluster.client.put("/v1/namespaces/team/resources/new", json=WISH)
    status, field, detail = problem(new)
    assert (status, field) == (409, "namespace")
    assert "namespace team is being deleted" in detail
    assert problem(await cluster.put())[:2] == (409, "name")
    await cluster.keep()
    await asyncio.sleep(5)
    assert problem(await cluster.put())[:2] == (404, "namespace")
    assert (await cluster.client.get("/v1/namespaces/team/resources")).json()["items"] == []
    assert list(cluster.simulation.application.resources.known.entries()) == []
    said: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await cluster.simulation.create(said, NAMESPACE)
    assert (await cluster.put()).status_code == 200
    assert cluster.stated() == ["4", "4"]


async def test_a_transaction_in_a_namespace_that_ends_leaves_nothing_elsewhere(cluster: Cluster) -> None:
    await cluster.simulation.ask("DELETE", NAMESPACE.path("", "team"))
    operations = [
        {"op": "set", "namespace": namespace, "name": "new", **WISH} for namespace in ("default", "team", "default")
    ]
    answer = await cluster.client.post("/v1/transactions", json={"operations": operations})
    assert (answer.status_code, answer.json()["field"]) == (409, "operations[1]")
    assert "namespace team is being deleted" in answer.json()["detail"]
    await asyncio.sleep(60)
    assert list((await cluster.client.get("/v1/namespaces/default/resources")).json()["items"]) == []
    await cluster.keep()
