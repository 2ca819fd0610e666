"""When the world is bad: no API server, a slow etcd, a flood of nodes. The whole service on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from extender.app.cache.staleness import STALE
from extender.kube.errors import Away
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import NODE, POD, Json
from lab.controlplane.nodes import NodeShape, plain
from lab.simulation import SERVICE, Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

DATA = "/v1/namespaces/default/resources/data"
ASKS: dict[str, Any] = {"escher.dev/default.data": 1}
NODES = ["node-0", "node-1", "node-2"]
NOBODY = "nobody"
"""A scheduler that does not run: its pods are asked about by the tests alone."""


def bound(simulation: Simulation) -> set[str]:
    found: list[Json] = simulation.cluster.api.store.list(POD, "default")
    return {each["metadata"]["name"] for each in found if each["spec"].get("nodeName")}


async def gang(simulation: Simulation, name: str, size: int = 2) -> list[Json]:
    return [
        await simulation.create(pod(f"{name}-{number}", gang=name, quorum=size, cpu=8), POD) for number in range(size)
    ]


async def filtered(simulation: Simulation, each: Json, nodes: list[str] = NODES) -> Any:
    assert simulation.service is not None
    body = msgspec.json.encode({"Pod": each, "Nodes": None, "NodeNames": nodes})
    return msgspec.json.decode(await simulation.service.call("filter", body))


@asynccontextmanager
async def management(simulation: Simulation) -> AsyncIterator[httpx.AsyncClient]:
    assert simulation.service is not None
    transport = httpx.ASGITransport(simulation.service.http)
    async with httpx.AsyncClient(transport=transport, base_url="http://escher.test") as client:
        yield client


@asynccontextmanager
async def without_api_server(simulation: Simulation) -> AsyncIterator[None]:
    """Nobody answers the service; kube-scheduler, on another machine, has its API server."""
    assert simulation.service is not None
    simulation.service.line.turn_away(Away("connection refused"))
    yield
    simulation.service.line.let_in()


async def test_without_an_api_server_verbs_are_answered_from_the_ledger_and_nothing_is_lost() -> None:
    async with Simulation(nodes=3) as simulation, management(simulation) as client:
        assert (await client.put(DATA, json={"capacity": 1, "node_spec": "node-1"})).status_code == 200
        asker = await simulation.create(pod("asker", NOBODY, **ASKS), POD)
        await asyncio.sleep(1)
        async with without_api_server(simulation):
            await asyncio.sleep(50)
            assert (await filtered(simulation, asker))["NodeNames"] == ["node-1"]
            await simulation.create(pod("plain"), POD)
            await until(lambda: "plain" in bound(simulation), within=2, what="an ordinary pod")
            # Its members are planned for, and turned away when nothing could be written for so long.
            await gang(simulation, "train")
            refused = await client.put(DATA, json={"capacity": 2, "node_spec": "node-1"})
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
            assert (await client.get(DATA)).json()["nodes"] == {"node-1": 1}
            await asyncio.sleep(10)
            assert bound(simulation) == {"plain"}
        await until(lambda: bound(simulation) == {"plain", "train-0", "train-1"}, within=60, what="the gang")
        assert (await client.put(DATA, json={"capacity": 2, "node_spec": "node-1"})).status_code == 200
        assert simulation.application.scheduler.cache.violations() == []


async def test_after_five_minutes_without_it_new_reservations_are_refused_until_it_is_back() -> None:
    async with Simulation(nodes=3) as simulation, management(simulation) as client:
        assert (await client.put(DATA, json={"capacity": 1, "node_spec": "node-1"})).status_code == 200
        asker = await simulation.create(pod("asker", NOBODY, **ASKS), POD)
        plain_one = await simulation.create(pod("plain", NOBODY), POD)
        await asyncio.sleep(1)
        async with without_api_server(simulation):
            await asyncio.sleep(370)
            answer = await filtered(simulation, asker)
            assert answer["NodeNames"] == []
            assert set({**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}.values()) == {STALE}
            assert answer["Error"] == ""
            assert sorted((await filtered(simulation, plain_one))["NodeNames"]) == NODES
            ages = (await client.get("/readyz")).json()["ages"]
            assert min(ages.values()) > 300
        await until(lambda: not simulation.application.scheduler.cache.staleness.is_stale(), within=30)
        assert (await filtered(simulation, asker))["NodeNames"] == ["node-1"]


async def test_while_etcd_takes_twenty_seconds_for_a_write_verbs_and_reads_wait_for_none() -> None:
    async with Simulation(nodes=3) as simulation, management(simulation) as client:
        for method in ("POST", "PUT", "PATCH"):
            slow = Fault(method=method, user=SERVICE, seconds=20.0, times=None)
            simulation.cluster.api.faults.add(slow)
        began = asyncio.get_running_loop().time()
        setting = asyncio.ensure_future(client.put(DATA, json={"capacity": 1, "node_spec": "node-1"}))
        await gang(simulation, "train")
        await asyncio.sleep(1)
        await simulation.create(pod("plain"), POD)
        await until(lambda: bound(simulation) == {"plain"}, within=2, what="an ordinary pod")
        assert (await client.get("/v1/cluster-state")).status_code == 200
        assert asyncio.get_running_loop().time() - began < 5
        assert not setting.done()
        await until(lambda: bound(simulation) == {"plain", "train-0", "train-1"}, within=60, what="the gang")
        assert (await setting).status_code == 200
        assert simulation.application.scheduler.cache.violations() == []


async def test_in_a_flood_of_nodes_a_verb_waits_for_a_slice_of_it_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Simulation(nodes=3) as simulation:
        scheduler, seen = simulation.application.scheduler, list[str]()
        observe, forget = scheduler.observe, scheduler.forget

        def observed(fact: Any) -> Any:
            seen.append(str(fact))
            return observe(fact)

        def forgotten(fact: Any) -> Any:
            seen.append(str(fact))
            return forget(fact)

        monkeypatch.setattr(scheduler, "observe", observed)
        monkeypatch.setattr(scheduler, "forget", forgotten)
        await gang(simulation, "waits", 6)
        asker = await simulation.create(pod("asker", NOBODY), POD)
        await asyncio.sleep(1)
        most = 0
        names = [f"more-{number}" for number in range(300)]
        simulation.hold_watches()
        for each, name in zip(plain(300, NodeShape()), names, strict=True):
            each["metadata"]["name"] = name
            await simulation.create(each, NODE)
        for name in names:
            await simulation.ask("DELETE", f"/api/v1/nodes/{name}")
        await asyncio.sleep(1)
        seen.clear()
        simulation.release_watches()
        before = 0
        while len(seen) < 600:
            await asyncio.sleep(0)
            answer = await filtered(simulation, asker)
            assert {*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]} == set(NODES)
            most, before = max(most, len(seen) - before), len(seen)
        # A slice of the watch of nodes, and one of that of pods.
        assert most <= 2 * 32
        await until(lambda: set(scheduler.cache.nodes) == set(NODES), what="what is left of the flood")
        assert scheduler.cache.violations() == []
