"""A cluster whose pods are governed: a scheduler that knows nothing of policies, and policies that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Pod
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import HOSTNAME, Parameters, PolicyInForce
from extender.kube.label_match import LabelRequirement, Selector
from extender.kube.names import NodeName, PodUid
from tests.builders import node, pod
from tests.core.gang_world import GangWorld

ZONE = "example.com/zone"


def selecting(**labels: str) -> Selector:
    return tuple(LabelRequirement(key, "In", (value,)) for key, value in labels.items())


def naming(*names: str) -> Mapping[str, str]:
    return {POLICY: ", ".join(names)}


@dataclass
class PolicyWorld(GangWorld):
    """`zones`: of each node, n0 and so on."""

    zones: str = "aabb"
    cpu: int = 4000
    policies: dict[tuple[str, str], PolicyInForce] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, zone in enumerate(self.zones):
            self.add(f"n{number}", zone)

    def add(self, name: str, zone: str, **labels: str) -> None:
        self.add_node(node(name, {"cpu": self.cpu}, labels={HOSTNAME: name, ZONE: zone, **labels}))

    def govern(self, name: str, parameters: Parameters, selector: Selector = None, namespace: str = "default") -> None:
        policy = self.policies[namespace, name] = PolicyInForce(parameters, selector)
        self.do(self.scheduler.govern(namespace, name, policy))

    def lift(self, name: str, namespace: str = "default") -> None:
        del self.policies[namespace, name]
        self.do(self.scheduler.govern(namespace, name, None))

    def restart_knowing_policies_first(self) -> None:
        self._replay = True
        self.restart()
        self._replay = False

    _replay: bool = False

    def _begin(self) -> None:
        super()._begin()
        if self._replay:
            self.learn_policies()

    def learn_policies(self) -> None:
        for (namespace, name), policy in self.policies.items():
            self.do(self.scheduler.govern(namespace, name, policy))

    def place(self, name: str, cpu: int = 1000, **facts: Any) -> NodeName | None:
        """A pod of that name is created and tried. Its node; None: it is asleep."""
        self.create(pod(name, {"cpu": cpu}, **facts))
        self.schedule()
        return self.node_of(name)

    def node_of(self, name: str) -> NodeName | None:
        return self.pods[PodUid(f"uid-{name}")].node

    def zone_of(self, name: str) -> str | None:
        at = self.node_of(name)
        return None if at is None else self.nodes[at].labels[ZONE]

    def reason(self, name: str) -> str:
        return self.asleep[PodUid(f"uid-{name}")]

    def awake(self) -> list[str]:
        """Names of pods that kube-scheduler would try next."""
        return sorted(each.name for each in self.pending())

    def known(self, name: str) -> Pod:
        scheduler: Scheduler = self.scheduler
        return scheduler.cache.pods[PodUid(f"uid-{name}")]
