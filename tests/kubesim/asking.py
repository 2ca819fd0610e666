"""An embedded cluster in virtual time whose policies are asked over HTTP, as an application does it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from extender.settings.settings import Settings
from kubesim.kinds import EVENT, NAMESPACE, NODE, POD, Json, Kind
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from tests.kubesim.until import until

TEAM = "team"
EPHEMERAL_RESOURCE = Kind("escher.dev", "v1alpha1", "EphemeralResource", "ephemeralresources")
PODS = f"/api/v1/namespaces/{TEAM}/pods"


class Asking:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    # -- the management API

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One call below the namespace's policies."""
        service = self.simulation.application
        transport = httpx.ASGITransport(create_api(service.management, service.ready, CollectorRegistry()))
        async with httpx.AsyncClient(transport=transport, base_url="http://escher.invalid") as client:
            return await client.request(method, f"/v1/namespaces/{TEAM}/policies{path}", json=body)

    async def ok(self, method: str, path: str, body: object = None) -> Json:
        answer = await self.ask(method, path, body)
        assert answer.status_code in (200, 204), answer.text
        return dict(answer.json()) if answer.content else {}

    async def put(self, name: str, kind: str, **parameters: Any) -> None:
        """The policy is in force, and at work."""
        await self.ok("PUT", f"/{name}", {"type": kind, "parameters": parameters})
        await asyncio.sleep(0.1)

    async def told(self, policy: str, task: str, **more: Any) -> Json:
        return await self.ok("POST", f"/{policy}:ask", {"task": {"name": task, **more}})

    # -- pods

    async def run(self, *policies: str, task: str, seconds: str = "1000", **more: Any) -> Json:
        """The policies are asked, and the task's pod exists with what they answered."""
        answers = [await self.told(policy, task, **more) for policy in policies]
        await self.create(task, *answers, seconds=seconds)
        return answers[0]

    async def create(self, name: str, *answers: Json, seconds: str = "1000", **annotations: str) -> None:
        resources = {key: units for answer in answers for key, units in answer["requirement"].items()}
        labels = {key: value for answer in answers for key, value in answer["labels"].items()}
        named = {key: value for answer in answers for key, value in answer["annotations"].items()}
        body: Json = {
            "metadata": {
                "name": name,
                "namespace": TEAM,
                "labels": labels,
                "annotations": {"escher.dev/run-seconds": seconds, **named, **annotations},
            },
            "spec": {
                "schedulerName": answers[0]["schedulerName"] if answers else "escher",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"requests": {"cpu": "100m", **resources}, "limits": resources},
                    }
                ],
            },
        }
        await self.simulation.create(body, POD)

    async def delete(self, pod: str) -> None:
        await self.simulation.ask("DELETE", f"{PODS}/{pod}")

    def pods(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self._all(POD)}

    def node_of(self, pod: str) -> str | None:
        node: str | None = self.pods()[pod]["spec"].get("nodeName")
        return node

    def phase(self, pod: str) -> str:
        return str(self.pods()[pod]["status"]["phase"])

    def running(self) -> set[str]:
        """Pods that have a node and have not finished."""
        return {
            name
            for name, pod in self.pods().items()
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
        }

    def reasons(self, pod: str) -> str:
        """What the pod's events say."""
        events = [(each.get("regarding") or each.get("involvedObject") or {}, each) for each in self._all(EVENT)]
        said = [each for whom, each in events if whom.get("name") == pod]
        return "\n".join(str(each.get("note") or each.get("message")) for each in said)

    # -- resources

    def objects(self) -> dict[str, dict[str, int]]:
        """Units by node, of each EphemeralResource."""
        return {each["metadata"]["name"]: each["spec"].get("nodes", {}) for each in self._all(EPHEMERAL_RESOURCE)}

    def units(self, name: str) -> Counter[str]:
        """What nodes say of it."""
        key = f"escher.dev/{TEAM}.{name}"
        nodes = self.simulation.cluster.api.store.list(NODE, "")
        found = {node["metadata"]["name"]: int(node["status"]["allocatable"].get(key, 0)) for node in nodes}
        return +Counter(found)

    async def by_hand(self, name: str, **units: int) -> None:
        """Somebody has set a resource of that name."""
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": name}}
        await self.simulation.ask("POST", EPHEMERAL_RESOURCE.path(TEAM), {**body, "spec": {"nodes": units}})

    async def until(self, holds: Callable[[], Any], within: float = 60.0, what: str = "") -> None:
        await until(holds, within=within, what=what or "what was waited for", every=0.1)

    def _all(self, kind: Kind) -> list[Json]:
        return list(self.simulation.cluster.api.store.list(kind, TEAM))


@asynccontextmanager
async def asking(nodes: int = 3, cpu: str = "8", settings: Settings | None = None) -> AsyncIterator[Asking]:
    """After it: the ledger is sound, and its totals are their slow twin's."""
    async with Simulation(nodes=nodes, node_shape=NodeShape(cpu=cpu), settings=settings) as simulation:
        await simulation.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}, NAMESPACE)
        yield Asking(simulation)
        assert simulation.application.scheduler.cache.violations() == []
