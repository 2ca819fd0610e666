"""Namespaces, controllers and resources that come and go leave nothing behind: daemons, exports, intents, names of
gangs, preemptions, policies, switches. Nominations: see `test_evicting`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from extender.app.contracts.api import SetResource, Transact
from extender.app.contracts.ports import NodeChoice
from extender.core.names import DOMAIN, EphemeralName
from extender.kube.names import NodeName
from kubesim.kinds import DAEMON_SET, NAMESPACE, NODE, POD, PRIORITY_CLASS, Json
from lab.controlplane.nodes import NodeShape, plain
from lab.simulation import Simulation
from loadtests.shared.pods import daemon_set, pod
from tests.app.test_what_has_gone import MAY_GROW as OF_PODS
from tests.reachable import sizes

pytestmark = pytest.mark.anyio


MAY_GROW = OF_PODS | {
    "ApiIntentStore._ready": "16,384 UIDs",
    "ApiObjectStore._ready": "16,384 UIDs",
    "ApiResourceStore._ready": "16,384 UIDs",
    "Known._ended": "65,536 UIDs",
    "RemovedNodes._left": "65,536 nodes",
    "IntentLog._lingering": "4,096 transactions",
    "WriteIds._created": "4,096 objects",
    "WriteIds._deleted": "4,096 marks",
    "Preemption._nominated": "16,384 UIDs",
    "ExpectedMembers._pauses": "4,096 namespaces",
}


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


OURS = f"/apis/{DOMAIN}/v1alpha1/namespaces"


def on(node: str) -> NodeChoice:
    return NodeChoice(NodeName(node))


class Town:
    """A cluster of five nodes; each round comes in namespaces and with names of its own, and goes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    async def come(self, number: int) -> None:
        ours, other = self.spaces(number)
        labels = {"escher.dev/preempt": "off", "escher.dev/odd-switch": "x"}
        await self.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ours}})
        await self.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other, "labels": labels}}
        )
        await self.daemons(number)
        await self.gangs_of_controllers(number)
        await self.resources(number)
        await self.preemption(number)
        await self.nodes(number)
        await self.policies(number)
        await asyncio.sleep(60)

    def spaces(self, number: int) -> tuple[str, str]:
        return f"team-{number}", f"other-{number}"

    async def create(self, kind: Any, made: Json, namespace: str = "") -> Json:
        if namespace:
            made = made | {"metadata": made["metadata"] | {"namespace": namespace}}
        return await self.simulation.create(made, kind)

    async def daemons(self, number: int) -> None:
        ours, _ = self.spaces(number)
        made = await self.create(DAEMON_SET, daemon_set(f"logs-{number}"), ours)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "controller": True,
            "name": f"logs-{number}",
            "uid": made["metadata"]["uid"],
        }
        for claim, uid in (("true", made["metadata"]["uid"]), ("false", f"none-{number}")):
            each = pod(f"logs-{claim}", labels={"of": f"logs-{number}"}, cpu="100m")
            each["metadata"]["ownerReferences"] = [owner | {"uid": uid}]
            await self.create(POD, each, ours)

    async def gangs_of_controllers(self, number: int) -> None:
        """Two of one kind and name, of different groups, and one that never comes whole."""
        ours, other = self.spaces(number)
        for group, quorum in (("batch", 2), ("batch.example.org", 2), ("late.example.org", 3)):
            owner = {
                "apiVersion": f"{group}/v1",
                "kind": "Job",
                "name": f"train-{number}",
                "uid": f"{group}-{number}",
                "controller": True,
            }
            for each in range(2):
                member = pod(f"train-{group}-{each}", quorum=quorum, cpu="100m")
                member["metadata"]["ownerReferences"] = [owner]
                await self.create(POD, member, ours)
        alone = pod("asks-wrongly", gang=f"bad-{number}", quorum="many", cpu="100m")
        await self.create(POD, alone, other)

    async def resources(self, number: int) -> None:
        ours, other = self.spaces(number)
        names = [EphemeralName(ours, f"{name}-{number}") for name in ("data", "lock")]
        await self.set(*(SetResource(name=name, capacity=1, choice=on("node-0"), exports=(other,)) for name in names))
        for name, space in (("mine", ours), ("theirs", other), ("never", other)):
            key = f"escher.dev/{ours}.{'nothing' if name == 'never' else 'data'}-{number}"
            asks: dict[str, Any] = {key: 1}
            await self.create(POD, pod(name, "escher-ledger", cpu="100m", **asks), space)

    async def preemption(self, number: int) -> None:
        """A gang for which others leave in vain, for it is deleted meanwhile; and one for which they leave."""
        ours, _ = self.spaces(number)
        for name in ("vain", "high"):
            for each in range(4):
                low = pod(f"low-{name}-{each}", cpu="6", selector={"kubernetes.io/hostname": f"node-{each + 1}"})
                await self.create(POD, low, ours)
            await asyncio.sleep(20)
            members = [pod(f"{name}-{each}", gang=name, quorum=4, cpu="6", priority_class="high") for each in range(4)]
            for each_one in members:
                await self.create(POD, each_one, ours)
            if name == "vain":
                await asyncio.sleep(0.3)
                await self.delete_pods(ours, name)
            await asyncio.sleep(20)
            await self.delete_pods(ours, "low")

    async def nodes(self, number: int) -> None:
        """One that has a resource, and is gone before the resource is."""
        ours, _ = self.spaces(number)
        for made in plain(1, NodeShape(cpu="8")):
            made["metadata"]["name"] = made["metadata"]["labels"]["kubernetes.io/hostname"] = f"extra-{number}"
            await self.create(NODE, made)
        await self.set(SetResource(name=EphemeralName(ours, "here"), capacity=1, choice=on(f"extra-{number}")))
        await asyncio.sleep(5)
        await self.simulation.ask("DELETE", f"/api/v1/nodes/extra-{number}")

    async def set(self, *wishes: SetResource) -> None:
        transactions = self.simulation.application.management.transactions
        outcome = await transactions.transact(Transact(operations=wishes))
        assert outcome.committed

    async def delete_pods(self, space: str, prefix: str = "") -> None:
        for each in self.simulation.cluster.api.store.list(POD, space):
            name = each["metadata"]["name"]
            if name.startswith(prefix):
                path = f"/api/v1/namespaces/{space}/pods/{name}?gracePeriodSeconds=0"
                await self.simulation.ask("DELETE", path)

    async def policies(self, number: int) -> None:
        ours, _ = self.spaces(number)
        queue: Json = {"type": "queue", "parameters": {"capacity": 1}}
        apart: Json = {"type": "anti-affinity", "selector": {"matchLabels": {"app": "db"}}}
        for name, spec in (("queue", queue), ("apart", apart)):
            made = {"apiVersion": f"{DOMAIN}/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}}
            await self.simulation.ask("POST", f"{OURS}/{ours}/escherpolicies", made | {"spec": spec})
        await self.create(POD, pod("db", labels={"app": "db"}, cpu="100m"), ours)

    async def go(self, number: int) -> None:
        simulation = self.simulation
        for space in self.spaces(number):
            await self.delete_pods(space)
        ours, other = self.spaces(number)
        await simulation.ask("DELETE", f"/apis/apps/v1/namespaces/{ours}/daemonsets/logs-{number}")
        for name in ("queue", "apart"):
            await simulation.ask("DELETE", f"{OURS}/{ours}/escherpolicies/{name}")
        for name in (f"data-{number}", f"lock-{number}", "here"):
            await simulation.ask("DELETE", f"{OURS}/{ours}/ephemeralresources/{name}")
        for space in (ours, other):
            await simulation.ask("DELETE", f"/api/v1/namespaces/{space}")


async def test_what_namespaces_controllers_and_resources_have_left_is_forgotten() -> None:
    found: list[Counter[str]] = []
    async with Simulation(nodes=5, node_shape=NodeShape(cpu="8")) as simulation:
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
        await simulation.create(made, PRIORITY_CLASS)
        town = Town(simulation)
        for number in range(3):
            await town.come(number)
            await town.go(number)
            await asyncio.sleep(4000)
            found.append(sizes(simulation.application, but=MAY_GROW))
    before, after = found[-2:]
    grown = {name for name in after if after[name] > before[name]}
    assert {name: [each[name] for each in found] for name in grown} == {}
