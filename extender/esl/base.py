"""The shape of an ESL: what it is told, what it wants done, and what it hands to the application.

Events are facts about pods and nodes, about what nodes say, and about effects that were carried out; effects are
creations, deletions, evictions and node resources, nothing else: that is all an ESL needs of a cluster whose scheduler
matches resources. Every effect may be carried out late, and those on different pods and nodes in any order; two on one
pod or one node in the order given.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol

from extender.core.cluster import Node, Pod
from extender.core.names import MANAGED, GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import count

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ASKING_ESCHER = frozenset({"escher", "escher-ledger"})
"""schedulerName of pods that bear the mark; of others, which settings may add, the API server's policy is to know."""


# -- events: past tense


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The pod exists and looks like this. Repeating it changes nothing."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """No pod of that name exists any more, or ever did."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The node is there, and looks like this. Of the ephemeral resources CapacitySeen tells. Repeating it changes
    nothing."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """No node of that name is there any more: neither is what it had, and what ran there ends."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class CapacityConfirmed:
    """The node has `units` of the resource; 0: it has no such key, or is itself gone."""

    node: NodeName
    resource: ResourceKey
    units: int


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """The node says so by now, though nobody was asked: somebody else has changed what it says of the resource."""

    node: NodeName
    resource: ResourceKey
    units: int


@dataclass(frozen=True, slots=True)
class EffectRefused:
    """The effect cannot be carried out, and would be refused again; `why` is the API server's word."""

    effect: Effect
    why: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened, other than that it is later: due after `next_deadline`."""


Event = PodSeen | PodGone | NodeSeen | NodeGone | CapacityConfirmed | CapacitySeen | EffectRefused | TimePassed


# -- effects: imperative


@dataclass(frozen=True, slots=True)
class Ghost:
    """A pod that does nothing: it holds `requests` (quantities, as text) on the node that it is bound to."""

    namespace: str
    name: str
    group: str
    """Whose ghost it is: the value of its label `escher.dev/ghost`."""
    requests: Mapping[str, str]
    placement: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """More fields of its spec, which the ESL passes on unread: nodeSelector, affinity, tolerations, priority class."""
    scheduler: str = "escher-resources"
    key: str = ""
    """What it holds the room for. By this, and by `run`, whoever comes after a crash knows what it is."""
    run: str = ""


@dataclass(frozen=True, slots=True)
class CreateGhost:
    ghost: Ghost


@dataclass(frozen=True, slots=True)
class DeleteGhost:
    namespace: str
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """The application's pod for the task is there, by this name, made from the application's own template with the
    requirement attached."""

    namespace: str
    name: str
    task: str
    requirement: PodRequirement


@dataclass(frozen=True, slots=True)
class CancelTask:
    """The pod goes, unless it is bound by then: refused then, and nothing has changed."""

    namespace: str
    name: str
    uid: PodUid


@dataclass(frozen=True, slots=True)
class StopTask:
    """The pod, which may run, ends as Kubernetes ends one: with its grace period."""

    namespace: str
    name: str
    uid: PodUid


@dataclass(frozen=True, slots=True)
class SetCapacity:
    node: NodeName
    resource: ResourceKey
    units: int


@dataclass(frozen=True, slots=True)
class RemoveCapacity:
    """The key goes; it is never set to 0, for which a kubelet would fail the pods that ask for it."""

    node: NodeName
    resource: ResourceKey


@dataclass(frozen=True, slots=True)
class EvictMember:
    """A pod of the application has to go, for the room that it runs on is held by nobody."""

    namespace: str
    name: str
    uid: PodUid


class News(Enum):
    RESERVED = "reserved"
    """Everything asked for is held, and the members' resources are on the nodes."""
    ROLLED_BACK = "rolled back"
    """Nothing is held; it will be tried again."""
    INCOMPLETE = "incomplete"
    """A part of what was held has been lost; it is being made good, or the member there is evicted."""
    ENDED = "ended"
    """Nothing is held, and nothing is left behind."""
    FAILED = "failed"
    """As ENDED, and what was asked for did not come about."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell whoever asked. `detail` is for people."""

    subject: GangKey
    news: News
    detail: str = ""
    run: str = ""
    """Which run of the gang it is about: its token."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell whoever asked `policy` for this task ("": for any) what they would wait in vain for, in words."""

    policy: str
    task: str
    text: str


Change = CreateGhost | DeleteGhost | EvictMember | SetCapacity | RemoveCapacity
TaskChange = LaunchTask | CancelTask | StopTask
"""What is done to the application's own pods."""
Effect = Change | TaskChange | Report | Notice


def lane_of(change: Change | TaskChange) -> str:
    """The pod or the node that it is about: what is done to one is done in order."""
    match change:
        case CreateGhost(ghost):
            return f"pod {ghost.name}"
        case SetCapacity(node) | RemoveCapacity(node):
            return f"node {node}"
        case DeleteGhost(name=name) | EvictMember(name=name) | LaunchTask(name=name):
            return f"pod {name}"
        case CancelTask(name=name) | StopTask(name=name):
            return f"pod {name}"


class Esl(Protocol):
    def handle(self, event: Event, now: float) -> list[Effect]:
        """What is to be done in view of the event. `now`: seconds on a clock that never goes back."""
        ...

    def next_deadline(self) -> float | None:
        """When TimePassed is due, should nothing else happen before."""
        ...


# -- what the application gets


@dataclass(frozen=True, slots=True)
class PodRequirement:
    """What a policy asks of one pod of the application, ready to be attached.

    `resources` are quantities as text. `without` names resources that the pod must not ask for itself, because they
    are held for it by other means.
    """

    resources: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    scheduler_name: str = ""
    without: frozenset[str] = frozenset()
    gates: tuple[str, ...] = ()
    """Scheduling gates that somebody will take off."""

    def __and__(self, other: PodRequirement) -> PodRequirement:
        """Both at once: of a resource that both ask for, the larger amount. Raises ValueError where no pod can meet
        both: two schedulers, or two values of one label."""
        if self.scheduler_name and other.scheduler_name and self.scheduler_name != other.scheduler_name:
            raise ValueError(f"one pod cannot have schedulerName {self.scheduler_name!r} and {other.scheduler_name!r}")
        for mine, theirs in ((self.labels, other.labels), (self.annotations, other.annotations)):
            for key in mine.keys() & theirs.keys():
                if mine[key] != theirs[key]:
                    raise ValueError(f"one pod cannot have {key}: {mine[key]!r} and {key}: {theirs[key]!r}")
        resources = dict(self.resources)
        for resource, quantity in other.resources.items():
            if resource not in resources or count(resource, quantity) > count(resource, resources[resource]):
                resources[resource] = quantity
        return PodRequirement(
            resources,
            {**self.labels, **other.labels},
            {**self.annotations, **other.annotations},
            self.scheduler_name or other.scheduler_name,
            self.without | other.without,
            tuple(dict.fromkeys((*self.gates, *other.gates))),
        )

    def attach(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the pod (or pod template) that meets the requirement; its first container carries the resources,
        and each container says of what it asks for none.

        An extended resource becomes request and limit, since Kubernetes wants them equal; others a request alone. A pod
        of the extender bears the mark by which kube-scheduler asks it; else the API server would have to put it on.
        """
        attached: dict[str, Any] = copy.deepcopy(dict(pod))
        metadata = attached.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **self.labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **self.annotations}
        spec = attached["spec"]
        if self.scheduler_name:
            spec["schedulerName"] = self.scheduler_name
        if self.gates:
            names = dict.fromkeys([*(gate["name"] for gate in spec.get("schedulingGates") or []), *self.gates])
            spec["schedulingGates"] = [{"name": name} for name in names]
        none = {resource: quantity for resource, quantity in self.resources.items() if quantity == "0"}
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
            resources = container.get("resources") or {}
            for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
                for resource in self.without & amounts.keys():
                    del amounts[resource]
            if none:
                # A quota of requests wants a word about each of them from every container.
                container["resources"] = {**resources, "requests": {**(resources.get("requests") or {}), **none}}
        resources = spec["containers"][0].setdefault("resources", {})
        resources["requests"] = {**(resources.get("requests") or {}), **self.resources}
        extended = {resource: quantity for resource, quantity in self.resources.items() if "/" in resource}
        if extended:
            resources["limits"] = {**(resources.get("limits") or {}), **extended}
        if self.scheduler_name in _ASKING_ESCHER:
            for amounts in ("requests", "limits"):
                resources[amounts] = {**(resources.get(amounts) or {}), MANAGED: "0"}
        return attached
