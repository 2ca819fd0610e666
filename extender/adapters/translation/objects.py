"""Objects: translates pods and nodes from Kubernetes' JSON (`kube.objects`) into the core's types.

Reads what belongs to Escher in a pod: gangs, attempts, gates, wakes. Equal vectors, labels and selectors are shared
among all pods and nodes: read them, never change them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any

from extender.adapters.translation.pod_constraints import read_constraints, read_unknown_asks
from extender.adapters.translation.pod_sizes import ANNOTATIONS, GATES, MOST, excess, within
from extender.core import cluster
from extender.core.affinity.constraints import Constraints
from extender.core.attempt import ATTEMPT, read_attempt
from extender.core.gang_ask import (
    GANG_GATE,
    LONGEST_KIND,
    LONGEST_NAME,
    LONGEST_UID,
    MIN_MEMBER,
    TIMEOUT,
    read_gang_ask,
)
from extender.core.names import DOMAIN, MANAGED
from extender.kube.names import NodeName, ResourceKey
from extender.kube.objects import (
    Node,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    Pod,
    PodCondition,
    PodMetadata,
    PodSpec,
    PodStatus,
)
from extender.kube.pod_requests import UnreadableObject
from extender.kube.quantities import Vector
from extender.kube.reading import requests_of, required_terms, taints_of, tolerations_of, units_of

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NO_GATES: frozenset[str] = frozenset()
_FINISHED = frozenset({"Succeeded", "Failed"})
_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of mirror pods: the kubelet creates one in the API for each static pod."""

_SHARED = 32
"""Labels up to which a mapping is shared. Shared ones are kept, also when no pod has them now."""

WAKE = f"{DOMAIN}/wake"
"""Annotation; a change of its value makes kube-scheduler try an unschedulable pod again."""

_OURS = f"{DOMAIN}/"
_READ_BY_NAME = frozenset({ATTEMPT, WAKE, MIN_MEMBER, TIMEOUT, f"{DOMAIN}/run-seconds"})
"""Other code reads these by name; the last is for the kubelets of clusters without machines."""


def to_pod(pod: Pod, longest_wait: float) -> cluster.Pod:
    """Returns the pod in the core's types. Raises UnreadableObject.

    `longest_wait`: the scheduler's `httpTimeout` in seconds, see `read_gang_ask`. A malformed gang ask is in
    `pod.gang`."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    for field, value in (("name", metadata.name), ("namespace", metadata.namespace), ("uid", metadata.uid)):
        if not value:
            raise UnreadableObject(f"metadata.{field}", value, "is empty")
    annotations = _annotations(metadata.annotations) if metadata.annotations else _NOTHING
    refused = excess(pod, annotations)
    gates = {gate.name for gate in spec.scheduling_gates} if spec.scheduling_gates else _NO_GATES
    owner = _controller(metadata.owner_references) if metadata.owner_references else None
    ask = (
        refused
        if refused is not None and not spec.node_name
        else read_gang_ask(
            metadata.namespace,
            metadata.labels or _NOTHING,
            metadata.annotations or _NOTHING,
            owner,
            longest_wait=longest_wait,
            at_our_gate=GANG_GATE in gates,
        )
    )
    if refused is not None:
        # A bound pod stays a member of its gang.
        pod, annotations = within(pod), _NOTHING
        metadata, spec = pod.metadata, pod.spec
    labels = _labels(metadata.labels) if metadata.labels else _NOTHING
    return cluster.Pod(
        uid=metadata.uid,
        namespace=intern(metadata.namespace),
        name=metadata.name,
        requests=_asked(requests_of(spec, status)),
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        scheduler=intern(spec.scheduler_name) if spec.scheduler_name else "",
        priority=spec.priority or 0,
        created=_seconds(metadata.creation_timestamp),
        bound_at=_bound_at(metadata, status) if spec.node_name else 0.0,
        deleting=metadata.deletion_timestamp is not None,
        preempts=spec.preemption_policy != "Never",
        gated=bool(gates - {GANG_GATE}) or GATES in (pod.cut or ()),
        at_our_gate=GANG_GATE in gates,
        finished=status is not None and status.phase in _FINISHED,
        succeeded=status is not None and status.phase == "Succeeded",
        labels=labels,
        mirror=metadata.annotations is not None and _MIRROR in metadata.annotations,
        attempt=read_attempt(metadata.annotations, metadata.uid) if metadata.annotations else None,
        nominated=NodeName(status.nominated_node_name) if status is not None and status.nominated_node_name else None,
        preempted=status is not None and status.conditions is not None and _is_preempted(status.conditions),
        ready=status is not None and _is_ready(status),
        starting=status is None or status.phase == "Pending",
        woken=metadata.annotations is not None and WAKE in metadata.annotations,
        gang=ask,
        annotations=annotations,
        owner=owner,
        node_selector=_labels(spec.node_selector) if spec.node_selector else _NOTHING,
        affinity=required_terms(spec.affinity),
        tolerations=tolerations_of(spec),
        constraints=_constraints(spec, metadata),
        unknown_asks=_unknown_asks(spec),
    )


def _labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Returns one shared mapping for equal labels, as pods of one template mostly have."""
    return _shared(tuple(labels.items())) if len(labels) <= _SHARED else labels


@lru_cache(maxsize=8192)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(items)


def is_managed(pod: Pod) -> bool:
    """Whether the pod requests the resource by which kube-scheduler may choose to call Escher."""
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        asks = container.resources
        if asks is not None and (MANAGED in (asks.requests or _NOTHING) or MANAGED in (asks.limits or _NOTHING)):
            return True
    return False


def _asked(requests: Vector) -> Vector:
    """The pod's requests without the marker resource `MANAGED`, which is no request to a node."""
    return _unmanaged(tuple(requests.items())) if MANAGED in requests else requests


@lru_cache(maxsize=4096)
def _unmanaged(requests: tuple[tuple[ResourceKey, int], ...]) -> Vector:
    return {resource: units for resource, units in requests if resource != MANAGED}


def _annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the annotations that policies may read."""
    if len(annotations) > MOST[ANNOTATIONS][0]:
        return _NOTHING
    found = {key: value for key, value in annotations.items() if key.startswith(_OURS) and key not in _READ_BY_NAME}
    return found or _NOTHING


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
    """Returns when the pod was bound, in seconds since the epoch.

    A kube-scheduler that took the Binding for failed has set PodScheduled to False. Then the time when the kubelet
    first saw the pod counts, else its creation."""
    for condition in (status.conditions if status is not None else None) or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return condition.last_transition_time.timestamp()
    started = status.start_time if status is not None else None
    return _seconds(started) or _seconds(metadata.creation_timestamp)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()


def to_node(node: Node) -> cluster.Node:
    """Returns the node in the core's types, with zeros of its status. Raises UnreadableObject."""
    metadata, spec, status = node.metadata, node.spec or NodeSpec(), node.status or NodeStatus()
    if not metadata.name:
        raise UnreadableObject("metadata.name", "", "is empty")
    return cluster.Node(
        name=NodeName(intern(metadata.name)),
        allocatable=units_of(status.allocatable),
        capacity=units_of(status.capacity),
        labels=metadata.labels or _NOTHING,
        taints=taints_of(spec),
        unschedulable=spec.unschedulable,
        uid=metadata.uid,
        version=metadata.resource_version,
    )


def _controller(references: list[OwnerReference]) -> cluster.Owner | None:
    for reference in references:
        if reference.controller:
            group, slash, _ = reference.api_version.partition("/")
            return _owner(
                reference.kind[: LONGEST_KIND + 1],
                reference.name[: LONGEST_NAME + 1],
                reference.uid[: LONGEST_UID + 1],
                group[: LONGEST_NAME + 1] if slash else "",
            )
    return None


@lru_cache(maxsize=16384)
def _owner(kind: str, name: str, uid: str, group: str) -> cluster.Owner:
    return cluster.Owner(kind, name, uid, group)
