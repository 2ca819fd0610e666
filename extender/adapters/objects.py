"""Objects: pods and nodes as Kubernetes' JSON spells them, and their translation into the core's.

The same for the API server's answers and for what kube-scheduler embeds in its calls. Only the fields that a decision
needs are declared; others are skipped unread. What must be there has no default, so a pod in other spelling, or an
empty one, is refused by the decoder (msgspec.ValidationError) and never taken for a pod that asks for nothing.

A pod whose quantities cannot be counted is an UnreadableObject. A *node* is not given up for one such quantity: the
resource counts as absent there, which is logged once, for all else on that node is still true.

The vectors in pods and nodes are shared among all that look the same: read them, never change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any

import structlog
from msgspec import Struct

from extender.adapters.pod_constraints import (
    Anything,
    ContainerPort,
    PodAffinity,
    SpreadConstraint,
    Volume,
    read_constraints,
    read_unknown_asks,
)
from extender.adapters.pod_requests import (
    Amounts,
    ContainerAmounts,
    PodAmounts,
    Quantity,
    UnreadableObject,
    effective_requests,
)
from extender.core import cluster
from extender.core.attempt import read_attempt
from extender.core.constraints import Constraints
from extender.core.gang_ask import GANG_GATE, read_gang_ask
from extender.core.names import DOMAIN, NodeName, PodUid, ResourceKey
from extender.core.units import InvalidQuantity, Vector, count

__all__ = ["Node", "Pod", "Quantity", "UnreadableObject", "to_node", "to_pod"]

_log = structlog.get_logger(__name__)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FINISHED = frozenset({"Succeeded", "Failed"})
_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of pods that stand for static ones."""

WAKE = f"{DOMAIN}/wake"
"""Annotation: another value makes kube-scheduler try a pod again that it has set aside."""

Quantities = dict[str, Quantity]


class _Json(Struct, rename="camel", gc=False):
    """Short-lived and without cycles, so the collector need not look at them."""


class OwnerReference(_Json):
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class PodMetadata(_Json):
    name: str
    namespace: str
    uid: PodUid
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None
    resource_version: str = ""


class Resources(_Json):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(_Json):
    name: str = ""
    resources: Resources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class SelectorRequirement(_Json):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(_Json):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Json):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Json):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Json):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TolerationJson(_Json):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(_Json):
    name: str = ""


class PodSpec(_Json):
    containers: list[Container]
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationJson] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    host_network: bool | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Anything] | None = None


class ContainerStatus(_Json):
    name: str
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodCondition(_Json):
    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Json):
    phase: str = ""
    nominated_node_name: str | None = None
    start_time: datetime | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class Pod(_Json):
    """A Pod, `v1`."""

    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus | None = None


class NodeMetadata(_Json):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""


class TaintJson(_Json):
    key: str
    effect: str
    value: str = ""


class NodeSpec(_Json):
    taints: list[TaintJson] | None = None
    unschedulable: bool = False


class NodeStatus(_Json):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class Node(_Json):
    """A Node, `v1`."""

    metadata: NodeMetadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


def to_pod(pod: Pod, longest_wait: float) -> cluster.Pod:
    """The pod in the core's terms. `longest_wait`: the scheduler's httpTimeout in seconds, see `read_gang_ask`.

    A malformed gang ask is part of the answer (`pod.gang`). Raises UnreadableObject.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    for field, value in (("name", metadata.name), ("namespace", metadata.namespace), ("uid", metadata.uid)):
        if not value:
            raise UnreadableObject(f"metadata.{field}", value, "is empty")
    owner = _controller(metadata.owner_references) if metadata.owner_references else None
    gates = {gate.name for gate in spec.scheduling_gates or ()}
    return cluster.Pod(
        uid=metadata.uid,
        namespace=intern(metadata.namespace),
        name=metadata.name,
        requests=effective_requests(_amounts(spec, status)),
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        scheduler=intern(spec.scheduler_name) if spec.scheduler_name else "",
        priority=spec.priority or 0,
        created=_seconds(metadata.creation_timestamp),
        bound_at=_bound_at(metadata, status) if spec.node_name else 0.0,
        deleting=metadata.deletion_timestamp is not None,
        preempts=spec.preemption_policy != "Never",
        gated=bool(gates - {GANG_GATE}),
        at_our_gate=GANG_GATE in gates,
        finished=status is not None and status.phase in _FINISHED,
        succeeded=status is not None and status.phase == "Succeeded",
        labels=metadata.labels or _NOTHING,
        mirror=metadata.annotations is not None and _MIRROR in metadata.annotations,
        attempt=read_attempt(metadata.annotations, metadata.uid) if metadata.annotations else None,
        nominated=NodeName(status.nominated_node_name) if status is not None and status.nominated_node_name else None,
        preempted=status is not None and status.conditions is not None and _is_preempted(status.conditions),
        ready=status is not None and _is_ready(status),
        starting=status is None or status.phase == "Pending",
        woken=metadata.annotations is not None and WAKE in metadata.annotations,
        gang=read_gang_ask(
            metadata.namespace,
            metadata.labels or _NOTHING,
            metadata.annotations or _NOTHING,
            (owner.kind, owner.name) if owner is not None else None,
            longest_wait=longest_wait,
            at_our_gate=GANG_GATE in gates,
        ),
        owner=owner,
        node_selector=spec.node_selector or _NOTHING,
        affinity=_terms(spec.affinity) if spec.affinity is not None else (),
        tolerations=_tolerations(tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations))
        if spec.tolerations
        else (),
        constraints=_constraints(spec, metadata),
        unknown_asks=_unknown_asks(spec),
    )


def _is_preempted(conditions: list[PodCondition]) -> bool:
    return any(each.type == "DisruptionTarget" and each.reason == "PreemptionByScheduler" for each in conditions)


def _is_ready(status: PodStatus) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())


def _constraints(spec: PodSpec, metadata: PodMetadata) -> Constraints | None:
    ports = [port for container in spec.containers for port in container.ports or ()]
    for container in spec.init_containers or ():
        if container.ports and container.restart_policy == "Always":
            ports += container.ports
    near = spec.affinity.pod_affinity if spec.affinity is not None else None
    apart = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    spread = spec.topology_spread_constraints or ()
    if not ports and near is None and apart is None and not spread:
        return None
    return read_constraints(
        intern(metadata.namespace),
        metadata.labels or _NOTHING,
        ports,
        near,
        apart,
        spread,
        on_host_network=bool(spec.host_network),
    )


def _unknown_asks(spec: PodSpec) -> tuple[str, ...]:
    if spec.affinity is None and spec.volumes is None and spec.resource_claims is None:
        return ()
    near = spec.affinity.pod_affinity if spec.affinity is not None else None
    apart = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    return read_unknown_asks(near, apart, spec.volumes or (), spec.resource_claims or ())


def _bound_at(metadata: PodMetadata, status: PodStatus | None) -> float:
    """A kube-scheduler that took the Binding for failed has written that the pod is not scheduled: then there is when
    the kubelet first heard of the pod; failing that, it was bound after it was created."""
    for condition in (status.conditions if status is not None else None) or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return condition.last_transition_time.timestamp()
    started = status.start_time if status is not None else None
    return _seconds(started) or _seconds(metadata.creation_timestamp)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def to_node(node: Node) -> cluster.Node:
    """The node in the core's terms; zeros of its status are kept. Raises UnreadableObject if it has no name."""
    metadata, spec, status = node.metadata, node.spec or NodeSpec(), node.status or NodeStatus()
    if not metadata.name:
        raise UnreadableObject("metadata.name", "", "is empty")
    return cluster.Node(
        name=NodeName(intern(metadata.name)),
        allocatable=_vector(tuple((status.allocatable or _NOTHING).items())),
        capacity=_vector(tuple((status.capacity or _NOTHING).items())),
        labels=metadata.labels or _NOTHING,
        taints=tuple(cluster.Taint(t.key, t.value, t.effect) for t in spec.taints or ()),
        unschedulable=spec.unschedulable,
        uid=metadata.uid,
        version=metadata.resource_version,
    )


def _amounts(spec: PodSpec, status: PodStatus | None) -> PodAmounts:
    reported: dict[str, ContainerStatus] = {}
    if status is not None and status.container_statuses:
        reported = {each.name: each for each in status.container_statuses}
    if status is not None and status.init_container_statuses:
        reported |= {each.name: each for each in status.init_container_statuses}
    return PodAmounts(
        tuple([_container(each, reported) for each in spec.containers]),
        tuple([_init_container(each, reported) for each in spec.init_containers]) if spec.init_containers else (),
        _items(spec.overhead),
        _whole(spec.resources, status) if spec.resources is not None else None,
        status is not None and status.conditions is not None and _resize_infeasible(status.conditions),
    )


def _container(
    container: Container, reported: Mapping[str, ContainerStatus], *, sidecar: bool = False
) -> ContainerAmounts:
    resources = container.resources
    requests = _items(resources.requests) if resources is not None else ()
    limits = _items(resources.limits) if resources is not None else ()
    seen = reported.get(container.name) if reported else None
    if seen is None or seen.resources is None:
        return ContainerAmounts(requests, limits, sidecar)
    return ContainerAmounts(
        requests, limits, sidecar, _items(seen.resources.requests), _items(seen.allocated_resources)
    )


def _init_container(container: Container, reported: Mapping[str, ContainerStatus]) -> ContainerAmounts:
    if container.restart_policy == "Always":
        return _container(container, reported, sidecar=True)
    # Only what goes on running can be resized in place, so kube-scheduler does not look at the others' status.
    return _container(container, _NOTHING)


def _whole(resources: Resources, status: PodStatus | None) -> ContainerAmounts:
    requests, limits = _items(resources.requests), _items(resources.limits)
    if status is None or status.resources is None:
        return ContainerAmounts(requests, limits)
    return ContainerAmounts(
        requests, limits, False, _items(status.resources.requests), _items(status.allocated_resources)
    )


def _items(quantities: Quantities | None) -> Amounts:
    return tuple(quantities.items()) if quantities else ()


def _resize_infeasible(conditions: list[PodCondition]) -> bool:
    for condition in conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _controller(references: list[OwnerReference]) -> cluster.Owner | None:
    for reference in references:
        if reference.controller:
            return _owner(reference.kind, reference.name, reference.uid)
    return None


@lru_cache(maxsize=16384)
def _owner(kind: str, name: str, uid: str) -> cluster.Owner:
    return cluster.Owner(kind, name, uid)


@lru_cache(maxsize=16384)
def _tolerations(raw: tuple[tuple[str, str, str, str], ...]) -> tuple[cluster.Toleration, ...]:
    return tuple(cluster.Toleration(*each) for each in raw)


def _terms(affinity: Affinity) -> tuple[cluster.SelectorTerm, ...]:
    required = affinity.node_affinity and affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return ()
    terms = tuple(
        cluster.SelectorTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in required.node_selector_terms or ()
    )
    # Node affinity that is required and has no term matches no node; no term at all would mean no requirement.
    return terms or (cluster.SelectorTerm(),)


def _requirements(raw: list[SelectorRequirement] | None) -> tuple[cluster.Requirement, ...]:
    return tuple(cluster.Requirement(each.key, each.operator, tuple(each.values or ())) for each in raw or ())


@lru_cache(maxsize=16384)
def _vector(amounts: Amounts) -> Vector:
    units: dict[ResourceKey, int] = {}
    for resource, quantity in amounts:
        counted = _count_if_possible(resource, str(quantity))
        if counted is not None:
            units[ResourceKey(resource)] = counted
    return units


@lru_cache(maxsize=1024)
def _count_if_possible(resource: str, quantity: str) -> int | None:
    try:
        return count(resource, quantity)
    except InvalidQuantity as error:
        _log.warning("a node's resource counts as absent", resource=resource, why=str(error))
        return None
