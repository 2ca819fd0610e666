"""Seen objects: pods and nodes as the scheduler reads them, each version decoded once.

`raw` is the stored JSON and never changes. Fields that filters and hints use often are attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from extender.kube import objects
from extender.kube.names import CPU, MEMORY, PodUid
from extender.kube.node_match import SelectorTerm, Taint, Toleration
from extender.kube.quantities import Vector
from extender.kube.reading import requests_of, taints_of, tolerations_of, units_of
from extender.kube.reading import required_terms as required_node_terms
from kubesim.kinds import Json
from kubesim.scheduler.state.host_ports import HostPort, host_ports
from kubesim.scheduler.state.pod_affinity import Term, required_terms

_NO_LABELS: Mapping[str, str] = {}
# In scoring only: what a container counts for if it requests none.
_USUAL_CPU = 100
_USUAL_MEMORY = 200 * 1024 * 1024
_ZONES = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
)
_encode = msgspec.json.Encoder().encode

PodKey = tuple[str, str]
"""Namespace and name."""
_EVERYTHING = (Toleration(operator="Exists"),)


@dataclass(frozen=True, slots=True)
class SeenPodRules:
    """A `kube.node_match.PodRules`: the nodes that the pod accepts, apart from free room."""

    node_selector: Mapping[str, str]
    affinity: tuple[SelectorTerm, ...]
    tolerations: tuple[Toleration, ...]

    def anywhere(self) -> SeenPodRules:
        """Without selector and affinity, so that only taints refuse."""
        return replace(self, node_selector=_NO_LABELS, affinity=())

    def tolerating_all(self) -> SeenPodRules:
        """Tolerating all taints, so that only selector and affinity refuse."""
        return replace(self, tolerations=_EVERYTHING)


@dataclass(frozen=True, slots=True)
class SeenNodeRules:
    """A `kube.node_match.NodeRules`: the pods that the node accepts, apart from free room."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class SeenPod:
    """One version of a pod. `node`: where it is bound or assumed; empty if neither."""

    __slots__ = (
        "_bytes",
        "affinity",
        "anti_affinity",
        "deleting",
        "gates",
        "key",
        "labels",
        "node",
        "nominated",
        "ports",
        "preempts",
        "priority",
        "raw",
        "requests",
        "rules",
        "scheduler",
        "scored_cpu",
        "scored_memory",
        "start_time",
        "uid",
        "version",
    )

    def __init__(self, raw: Json) -> None:
        """Raises msgspec.ValidationError, UnreadableObject."""
        read = msgspec.convert(raw, objects.Pod)
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        self.raw = raw
        self.key: PodKey = (read.metadata.namespace, read.metadata.name)
        self.uid: PodUid = read.metadata.uid
        self.version = str(metadata.get("resourceVersion", ""))
        self.node = read.spec.node_name or ""
        self.scheduler = read.spec.scheduler_name or ""
        self.deleting = read.metadata.deletion_timestamp is not None
        self.priority = read.spec.priority or 0
        self.preempts = read.spec.preemption_policy != "Never"
        """Whether pods of lower priority may be evicted for it."""
        self.requests: Vector = requests_of(read.spec, read.status)
        self.rules = SeenPodRules(
            read.spec.node_selector or _NO_LABELS, required_node_terms(read.spec.affinity), tolerations_of(read.spec)
        )
        self.labels: Mapping[str, str] = metadata.get("labels") or _NO_LABELS
        self.nominated: str = status.get("nominatedNodeName") or ""
        self.gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ())
        self.ports: tuple[HostPort, ...] = host_ports(spec)
        self.start_time: str | None = status.get("startTime")
        affinity = spec.get("affinity") or {}
        self.affinity: tuple[Term, ...] = required_terms(affinity.get("podAffinity"), self.namespace, self.labels)
        self.anti_affinity: tuple[Term, ...] = required_terms(
            affinity.get("podAntiAffinity"), self.namespace, self.labels
        )
        self.scored_cpu = self.requests.get(CPU, 0) + _USUAL_CPU * _silent(spec, "cpu")
        self.scored_memory = self.requests.get(MEMORY, 0) + _USUAL_MEMORY * _silent(spec, "memory")
        self._bytes: msgspec.Raw | None = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    def on(self, node: str) -> SeenPod:
        """The same pod, assumed on that node."""
        assumed = copy.copy(self)
        assumed.node = node
        assumed._bytes = None
        return assumed

    def encoded(self) -> msgspec.Raw:
        """The pod as Go marshals the scheduler's copy: without kind and managed fields."""
        if self._bytes is None:
            raw = _without_kind(self.raw)
            if self.node and not raw["spec"].get("nodeName"):
                raw["spec"] = {**raw["spec"], "nodeName": self.node}
            self._bytes = msgspec.Raw(_encode(raw))
        return self._bytes

    def __repr__(self) -> str:
        return f"{self.namespace}/{self.name}"


class SeenNode:
    """One version of a node."""

    def __init__(self, raw: Json) -> None:
        """Raises msgspec.ValidationError."""
        read = msgspec.convert(raw, objects.Node)
        spec = read.spec or objects.NodeSpec()
        self.raw = raw
        self.name = read.metadata.name
        self.labels: Mapping[str, str] = read.metadata.labels or _NO_LABELS
        self.allocatable: Vector = units_of(read.status.allocatable if read.status is not None else None)
        self.rules = SeenNodeRules(self.name, self.labels, taints_of(spec), spec.unschedulable)
        self.annotations: Mapping[str, str] = raw["metadata"].get("annotations") or {}
        conditions = (raw.get("status") or {}).get("conditions") or ()
        self.conditions: Mapping[str, str] = {each.get("type", ""): each.get("status", "") for each in conditions}
        zone, region = (next((self.labels[key] for key in keys if key in self.labels), "") for keys in _ZONES)
        self.zone = (region, zone)
        self.advises = any(taint.effect == "PreferNoSchedule" for taint in self.rules.taints)
        self._bytes: msgspec.Raw | None = None

    @cached_property
    def untainted(self) -> SeenNodeRules:
        """Its rules without taints, as the plugin NodeUnschedulable checks them."""
        return replace(self.rules, taints=())

    def encoded(self) -> msgspec.Raw:
        """The node as Go marshals it."""
        if self._bytes is None:
            self._bytes = msgspec.Raw(_encode(_without_kind(self.raw)))
        return self._bytes


def _without_kind(raw: Json) -> Json:
    metadata = raw["metadata"]
    if "managedFields" in metadata:
        metadata = {key: value for key, value in metadata.items() if key != "managedFields"}
    rest = {key: value for key, value in raw.items() if key not in ("kind", "apiVersion", "metadata")}
    return {"metadata": metadata, **rest, "status": raw.get("status") or {}}


def _silent(spec: Mapping[str, Any], resource: str) -> int:
    """How many containers have neither request nor limit for the resource."""
    silent = 0
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        if resource not in (resources.get("requests") or ()) and resource not in (resources.get("limits") or ()):
            silent += 1
    return silent
