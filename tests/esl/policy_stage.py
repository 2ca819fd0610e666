"""A cluster in virtual time, and applications on it that run policies without the service, in each of the spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from escher_k8s.esl import PolicySpace
from extender.adapters.kubernetes.appspace.extended_resource_policies import Policies
from extender.app.escher_policies.esl_host import HostedPolicies
from extender.core.names import DOMAIN
from extender.esl.base import Effect, Event, PodRequirement
from extender.esl.gangs.gang_spec import APPLICATION_DOMAIN
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.policy_asks import Application, PolicyAsks
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.client.requests import Requests
from extender.kube.names import NodeName
from extender.kube.quantities import Vector
from extender.settings.settings import Settings
from kubesim.kinds import NODE, POD, Json
from lab.controlplane.nodes import NodeShape, plain
from tests.escher_k8s.polling_port import PollingPort
from tests.esl.stage import Stage, play

SPACES = ("AppSpace on a port", "AppSpace", "LibSpace on a port", "LibSpace", "extender")
"""Of one application on a port of its own, or over the API server; of several, likewise; and in the service."""

DOMAINS = (APPLICATION_DOMAIN, DOMAIN)

P = TypeVar("P", bound=PolicyEsl)


Space = Policies | PolicySpace | HostedPolicies


def of(space: str, policy: Callable[..., P], *given: Any, **more: Any) -> P:
    """The same policy for each space: of the service's domain and scheduler where it is the service's."""
    return policy(*given, **more, **({"domain": DOMAIN, "scheduler": "escher"} if space == "extender" else {}))


class PolicyStage(Stage):
    def space(self, kind: str, policies: Sequence[PolicyEsl], **wishes: Any) -> Space:
        wishes = {"namespace": "default", **wishes}
        if kind == "extender":
            return self.simulation.application.hosting.space(policies, **wishes)
        if kind.endswith("port"):
            return PolicySpace(PollingPort(self.simulation, wishes["namespace"]), policies, **wishes)
        return self.over(self.door(), policies, **wishes)

    def over(self, requests: Requests, policies: Sequence[PolicyEsl], **wishes: Any) -> Policies:
        return Policies(requests, policies, **wishes)

    def all_pods(self) -> list[Json]:
        return self.all(POD)

    def askers(self, kind: str, space: PolicyAsks) -> tuple[PolicyAsks | Application, PolicyAsks | Application]:
        """Two who ask: two applications of one space, or the same twice."""
        return (space, space) if kind.startswith("AppSpace") else (space.application(), space.application())

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
                if key.partition("/")[0] in DOMAINS:
                    found.setdefault(key.partition("/")[2].partition(".")[2], {})[node["metadata"]["name"]] = units
        return found

    def allocatable(self) -> list[dict[str, str]]:
        """Of each node."""
        return [each["status"]["allocatable"] for each in self.all(NODE)]

    async def add(self, name: str) -> None:
        """There is one node more."""
        [node] = plain(1, NodeShape(cpu="8"))
        await self.simulation.create({**node, "metadata": {**node["metadata"], "name": name}}, NODE)

    async def lose(self, node: str) -> None:
        """The node is gone for good."""
        await self.simulation.ask("DELETE", f"/api/v1/nodes/{node}")

    async def reset(self, node: str) -> Json:
        """Its kubelet has forgotten its extended resources; what it said then."""
        status = next(each for each in self.all(NODE) if each["metadata"]["name"] == node)["status"]
        ours = dict.fromkeys(key for key in status["capacity"] if key.partition("/")[0] in DOMAINS)
        body = {"status": {"capacity": ours, "allocatable": ours}}
        content = "application/merge-patch+json"
        said = await self.simulation.ask("PATCH", f"/api/v1/nodes/{node}/status", body, content_type=content)
        allocatable: Json = said["status"]["allocatable"]
        return allocatable

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
async def staged(nodes: int = 3, cpu: str = "8", settings: Settings | None = None) -> AsyncIterator[PolicyStage]:
    stage = PolicyStage(nodes, cpu, settings)
    async with stage.simulation:
        yield stage


def on_stage(story: Callable[[PolicyStage], Awaitable[None]], **wishes: Any) -> None:
    async def staged_story() -> None:
        async with staged(**wishes) as stage:
            await story(stage)

    play(staged_story())


class Near(PolicyEsl):
    """Data are where `holder` says, if that node is there; else on the first that is."""

    def __init__(self, name: str = "near", holder: str = "node-0", **more: Any) -> None:
        super().__init__(name, **more)
        self.holder = holder

    def requires(self, task: Task) -> Vector:
        return {self.key("data-1"): 1}

    def capacities(self, now: float) -> Wanted:
        there = [self.holder] if self.holder in self.view.nodes else sorted(self.view.nodes)[:1]
        return {NodeName(node): {self.key("data-1"): 100} for node in there}


class Furnished(AntiAffinity):
    """Notes what it wants of nodes."""

    def __init__(self, **more: Any) -> None:
        super().__init__("apart", **more)
        self.wanted: list[Effect] = []

    def begin(self, events: Any, now: float) -> list[Effect]:
        effects = super().begin(events, now)
        self.wanted += effects
        return effects

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = super().handle(event, now)
        self.wanted += effects
        return effects
