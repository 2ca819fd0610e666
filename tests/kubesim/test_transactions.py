"""Transactions over several objects on the embedded cluster: the service is killed in the midst of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from extender.adapters.kubernetes.codecs.intents import TransactionIntents
from extender.adapters.kubernetes.codecs.resources import to_json
from extender.app.contracts.api import SetResource, Transact
from extender.app.contracts.kind import Declared, Identity
from extender.app.contracts.ports import EphemeralResource, Former, Intent, NodeChoice
from extender.app.objects.write_ids import WriteIds
from extender.app.resources import set_resource as resources
from extender.app.resources.reconciler import digest
from extender.app.resources.set_resource_plan import plan
from extender.core.names import EphemeralName
from extender.kube.errors import Refused
from extender.kube.names import NodeName
from extender.settings.settings import OWN_NAMESPACE
from kubesim.kinds import NODE, Kind
from lab.simulation import Simulation

pytestmark = pytest.mark.anyio
HEAD = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource"}
OBJECTS = "/apis/escher.dev/v1alpha1/ephemeralresources"
INTENTS = f"/apis/escher.dev/v1alpha1/namespaces/{OWN_NAMESPACE}/transactionintents"
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


async def intents(simulation: Simulation) -> list[Any]:
    found: list[Any] = (await simulation.ask("GET", INTENTS))["items"]
    return found


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
            await simulation.application.management.resources.set_resource(
                wish("default", name.partition("/")[2], units)
            )
        await asyncio.sleep(20)
        call = asyncio.ensure_future(
            simulation.application.management.transactions.transact(Transact(operations=WISHES))
        )
        await asyncio.sleep(killed_after)
        answered = call.done() and call.result().committed == [0, 1, 2, 3]
        call.cancel()
        await simulation.restart()
        await asyncio.sleep(30)
        now = await objects(simulation)
        assert now in ([AFTER] if answered else [AFTER, BEFORE])
        assert stated(simulation) == [now, now]
        assert simulation.application.intents.unfinished() == 0
        # Creations that were not found may be on their way for a minute.
        await asyncio.sleep(60)
        assert await intents(simulation) == []
        assert await objects(simulation) == now
        assert simulation.application.scheduler.cache.violations() == []


async def test_undisturbed_it_is_in_force_when_it_is_answered() -> None:
    async with Simulation(nodes=2, latency=0.02) as simulation:
        for name, units in BEFORE.items():
            await simulation.application.management.resources.set_resource(
                wish("default", name.partition("/")[2], units)
            )
        outcome = await simulation.application.management.transactions.transact(Transact(operations=WISHES))
        assert outcome.committed == [0, 1, 2, 3]
        assert await objects(simulation) == AFTER
        assert stated(simulation) == [AFTER, AFTER]


async def test_a_defect_in_the_midst_of_it_is_told_as_one_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Simulation(nodes=2, latency=0.02) as simulation:
        service = simulation.application
        api = create_api(service.management, service.ready, CollectorRegistry())
        transport = httpx.ASGITransport(api, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://escher.invalid") as client:
            await service.management.resources.set_resource(wish("default", "changed", 1))

            def broken(request: SetResource, *more: Any) -> Any:
                if request.name.name == "made":
                    raise KeyError("a defect")
                return plan(request, *more)

            monkeypatch.setattr(resources, "plan", broken)
            body = {
                "operations": [
                    {"op": "set", "namespace": each.name.namespace, "name": each.name.name, "capacity": each.capacity}
                    | {"node_spec": {}}
                    for each in reversed(WISHES[:2])
                ]
            }
            answer = await client.post("/v1/transactions", json=body)
        said = answer.json()
        assert (answer.status_code, said["type"], said["field"]) == (500, "urn:escher:problem:internal", None)
        assert answer.headers["content-type"] == "application/problem+json"
        await asyncio.sleep(10)
        assert await objects(simulation) == {"default/changed": 1}
        assert stated(simulation) == [{"default/changed": 1}] * 2


async def test_what_another_service_has_left_is_counted_and_taken_back_after_a_minute() -> None:
    async with Simulation(nodes=2) as simulation:
        registry = simulation.application.registry
        made = EphemeralResource(EphemeralName("default", "made"), {NodeName("node-1"): 3})
        was = EphemeralResource(EphemeralName("default", "changed"), {NodeName("node-0"): 1, NodeName("node-1"): 1})
        left = Intent((Former(Identity("default", "made"), None), Former(Identity("default", "changed"), was)))
        await simulation.ask(
            "POST",
            INTENTS,
            TransactionIntents().manifest(Declared(Identity(OWN_NAMESPACE, "transaction-theirs"), left)),
        )
        marks, path = WriteIds(), "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
        changed = replace(was, nodes={NodeName("node-0"): 5})
        for each in (replace(each, mark=marks.of("theirs", digest(each))) for each in (made, changed)):
            await simulation.ask("POST", path, to_json(each))
        await asyncio.sleep(50)
        assert registry.get_sample_value("escher_transactions_unfinished") == 1
        assert (await objects(simulation))["default/changed"] == 5
        await asyncio.sleep(15)
        assert registry.get_sample_value("escher_transactions_unfinished") == 0
        assert await objects(simulation) == {"default/changed": 1}
        assert stated(simulation) == [{"default/changed": 1}] * 2


@pytest.mark.parametrize("killed", [False, True])
async def test_an_object_of_kubectl_of_which_single_nodes_were_set_is_made_again_as_it_was(killed: bool) -> None:
    """Nobody can create one with both nodes and a nodeSpec."""
    async with Simulation(nodes=2, latency=0.02) as simulation:
        spec = {"capacity": 3, "nodeSpec": {}}
        await simulation.create({**HEAD, "metadata": {"name": "mixed"}, "spec": spec}, _kind(simulation))
        await asyncio.sleep(10)
        management, node = simulation.application.management, NodeChoice(node=NodeName("node-0"))
        await management.resources.set_resource(replace(wish("default", "mixed", 7), choice=node))
        await asyncio.sleep(10)
        before = [{"default/mixed": 7}, {"default/mixed": 3}]
        assert stated(simulation) == before
        store = simulation.application.resources.writing._store
        create = store.create

        async def refused(item: EphemeralResource, **options: Any) -> EphemeralResource:
            if item.name.name == "bad":
                await asyncio.sleep(1)
                raise Refused(422, "no such luck")
            return await create(item, **options)

        store.create = refused  # type: ignore[method-assign]
        wishes = [wish("default", "mixed", 0), wish("default", "bad", 1)]
        call = asyncio.ensure_future(management.transactions.transact(Transact(operations=wishes)))
        await asyncio.sleep(0.5)
        assert "default/mixed" not in await objects(simulation)
        if killed:
            call.cancel()
            await simulation.restart()
        else:
            assert (await call).committed == []
        await asyncio.sleep(10)
        assert stated(simulation) == before
        assert simulation.application.intents.unfinished() == 0
        found = (await simulation.ask("GET", OBJECTS))["items"][0]["spec"]
        assert (found["nodes"], found["capacity"], found["nodeSpec"]) == ({"node-0": 7}, 3, {})


def _kind(simulation: Simulation) -> Kind:
    return next(each for each in simulation.cluster.api.served.all() if each.plural == "ephemeralresources")
