"""The interface of an ESL: events in, effects out, and the requirement for the application's pods.

Events are facts about pods, nodes, node resources and executed effects. Effects are creations, deletions, evictions and
node resources, nothing else: an ESL needs no more of a cluster whose scheduler matches resources. Every effect may be
executed late. Effects on different pods and nodes may be executed in any order; two on one pod or node in their order.
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
"""`attach` marks pods of these schedulers; for names added by settings, an admission policy."""


# -- events: past tense


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The pod exists and looks like this. Repeating it changes nothing."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """No pod of that name exists now; perhaps none ever did."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The node exists and looks like this; `CapacitySeen` reports its ephemeral resources.

    Repeating it changes nothing."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """No node of that name exists. Its resources are gone, and the pods there end."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class CapacityConfirmed:
    """The node has `units` of the resource; 0: it has no such key, or the node is gone."""

    node: NodeName
    resource: ResourceKey
    units: int


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """The node now has `units`, though the ESL did not ask: another writer changed the resource."""

    node: NodeName
    resource: ResourceKey
    units: int


@dataclass(frozen=True, slots=True)
class EffectRefused:
    """The effect cannot be executed, now or later; `why` is the API server's text."""

    effect: Effect
    why: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed and nothing else happened: due after `next_deadline`."""


Event = PodSeen | PodGone | NodeSeen | NodeGone | CapacityConfirmed | CapacitySeen | EffectRefused | TimePassed


# -- effects: imperative


@dataclass(frozen=True, slots=True)
class Ghost:
    """A pod that only holds `requests` (quantities, as text) on the node that it is bound to."""

    namespace: str
    name: str
    group: str
    """The gang of the ghost: the value of its label `escher.dev/ghost`."""
    requests: Mapping[str, str]
    placement: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """More fields of its spec, unread: nodeSelector, affinity, tolerations, priority class."""
    scheduler: str = "escher-resources"
    key: str = ""
    """The key whose room it holds. After a crash, this and `run` identify the ghost."""
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
    """The task's pod exists: it is the application's own template with `requirement` attached."""

    namespace: str
    name: str
    task: str
    requirement: PodRequirement


@dataclass(frozen=True, slots=True)
class CancelTask:
    """The pod is deleted, unless it is bound by then: then refused, and nothing has changed."""

    namespace: str
    name: str
    uid: PodUid


@dataclass(frozen=True, slots=True)
class StopTask:
    """The pod, which may run, is ended as Kubernetes does it: with its grace period."""

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
    """The key is removed, never set to 0: a kubelet would fail the pods that ask for it."""

    node: NodeName
    resource: ResourceKey


@dataclass(frozen=True, slots=True)
class EvictMember:
    """A pod of the application is evicted, because no ghost holds the room that it runs on."""

    namespace: str
    name: str
    uid: PodUid


class News(Enum):
    RESERVED = "reserved"
    """Everything asked for is held, and the members' resources are on the nodes."""
    ROLLED_BACK = "rolled back"
    """Nothing is held; another attempt follows."""
    INCOMPLETE = "incomplete"
    """A part of what was held is lost; it is being replaced, or the member there is evicted."""
    ENDED = "ended"
    """Nothing is held, and nothing is left behind."""
    FAILED = "failed"
    """As ENDED, but what was asked for was not achieved."""


@dataclass(frozen=True, slots=True)
class Report:
    """News for the caller that asked for the gang. `detail` is text for people."""

    subject: GangKey
    news: News
    detail: str = ""
    run: str = ""
    """The token of the gang's run that the report is about."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Text for the asker of a task ("": of any): what it would wait for without effect."""

    policy: str
    task: str
    text: str


Change = CreateGhost | DeleteGhost | EvictMember | SetCapacity | RemoveCapacity
TaskChange = LaunchTask | CancelTask | StopTask
"""Changes of the application's own pods."""
Effect = Change | TaskChange | Report | Notice


def lane_of(change: Change | TaskChange) -> str:
    """The pod or node that the change is about; changes of one lane are executed in order."""
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
        """What is to be done after the event. `now`: seconds on a clock that never goes back."""
        ...

    def next_deadline(self) -> float | None:
        """When TimePassed is due if nothing else happens before."""
        ...


# -- the application's requirement


@dataclass(frozen=True, slots=True)
class PodRequirement:
    """What a policy asks of one pod of the application, ready to be attached.

    `resources` are quantities as text. `without` names resources that the pod must not ask for itself, because they are
    held for it by other means.
    """

    resources: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    scheduler_name: str = ""
    without: frozenset[str] = frozenset()
    gates: tuple[str, ...] = ()
    """Scheduling gates that another component will remove."""

    def __and__(self, other: PodRequirement) -> PodRequirement:
        """Both requirements at once: of a resource in both, the larger amount.

        Raises ValueError if no pod can meet both: two schedulers, or two values of one label or annotation."""
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
        """A copy of the pod (or pod template) that meets the requirement.

        The first container carries the resources; every container requests 0 of what has the quantity "0". An extended
        resource becomes request and limit, since Kubernetes wants them equal; others only a request. A pod of the
        extender carries the mark by which kube-scheduler calls the extender; otherwise the API server must add it.
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
                # A quota of requests requires every container to state each of these resources.
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
