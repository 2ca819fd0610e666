"""A cluster in virtual time, and applications on it that run policies without the service, in each of the spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from escher_k8s.esl import PolicySpace
from extender.adapters.kube.extended_resource_policies import Policies
from extender.controlplane.nodes import NodeShape, plain
from extender.esl.base import PodRequirement
from extender.esl.policy_asks import Application, PolicyAsks
from extender.esl.policy_esl import PolicyEsl, Task
from extender.kube.requests import Requests
from kubesim.kinds import NODE, POD, Json
from tests.escher_k8s.polling_port import PollingPort
from tests.esl.stage import Stage

SPACES = ("AppSpace on a port", "AppSpace", "LibSpace on a port", "LibSpace")
"""Of one application on a port of its own, or over the API server; of several, likewise."""


class PolicyStage(Stage):
    def space(self, kind: str, policies: Sequence[PolicyEsl], **wishes: Any) -> Policies | PolicySpace:
        if kind.endswith("port"):
            return PolicySpace(PollingPort(self.simulation, "default"), policies, **wishes)
        return self.over(self.door(), policies, **wishes)

    def over(self, requests: Requests, policies: Sequence[PolicyEsl], **wishes: Any) -> Policies:
        return Policies(requests, policies, **wishes)

    def all_pods(self) -> list[Json]:
        return self.all(POD)

    def askers(self, kind: str, space: PolicyAsks) -> tuple[PolicyAsks | Application, PolicyAsks | Application]:
        """Two who ask: two applications of one space, or the same twice."""
        return (space.application(), space.application()) if kind.startswith("LibSpace") else (space, space)

    async def ask(
        self, by: PolicyAsks | Application, policy: PolicyEsl, name: str, group: str = "", seconds: str = "1000"
    ) -> PodRequirement:
        """It is asked for, and launched."""
        requirement = await by.ask(policy, Task(name, group))
        await self.create(self.simulation.requests, name, requirement, seconds)
        return requirement

    async def create(self, requests: Requests, name: str, requirement: PodRequirement, seconds: str = "1000") -> None:
        await requests.request("POST", POD.path("default"), msgspec.json.encode(requirement.attach(pod(name, seconds))))

    def where(self, *names: str) -> list[str | None]:
        """The nodes of these pods; None for one that waits, or is not there."""
        there = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in self.all(POD)}
        return [there.get(name) for name in names]

    def units(self) -> dict[str, dict[str, str]]:
        """What nodes have of policies' resources, by the part of the key that follows the namespace."""
        found: dict[str, dict[str, str]] = {}
        for node in self.all(NODE):
            for key, units in node["status"]["allocatable"].items():
                if key.startswith("app.escher.dev/"):
                    found.setdefault(key.partition("/")[2].partition(".")[2], {})[node["metadata"]["name"]] = units
        return found

    async def add(self, name: str) -> None:
        """There is one node more."""
        [node] = plain(1, NodeShape(cpu="8"))
        await self.simulation.create({**node, "metadata": {**node["metadata"], "name": name}}, NODE)

    async def lose(self, node: str) -> None:
        """The node is gone for good."""
        await self.simulation.ask("DELETE", f"/api/v1/nodes/{node}")

    async def reset(self, node: str) -> None:
        """Its kubelet has forgotten its extended resources."""
        status = next(each for each in self.all(NODE) if each["metadata"]["name"] == node)["status"]
        ours = dict.fromkeys(key for key in status["capacity"] if key.startswith("app.escher.dev/"))
        body = {"status": {"capacity": ours, "allocatable": ours}}
        content = "application/merge-patch+json"
        await self.simulation.ask("PATCH", f"/api/v1/nodes/{node}/status", body, content_type=content)

    def together(self, label: str) -> Counter[tuple[str, str]]:
        """How many live pods with one value of the label a node has, by node and value."""
        return Counter(
            (each["spec"]["nodeName"], each["metadata"]["labels"][label])
            for each in self.all(POD)
            if label in each["metadata"].get("labels", {})
            and each["spec"].get("nodeName")
            and each["status"].get("phase") not in ("Succeeded", "Failed")
        )


def pod(name: str, seconds: str = "1000") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"escher.dev/run-seconds": seconds}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


@asynccontextmanager
async def staged(nodes: int = 3, cpu: str = "8") -> AsyncIterator[PolicyStage]:
    stage = PolicyStage(nodes, cpu)
    async with stage.simulation:
        yield stage
