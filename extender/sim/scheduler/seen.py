"""Seen objects: pods and nodes as the scheduler has read them, each decoded once for each of its versions.

The stored JSON stays as it is (`raw`) and is never changed; what filters and hints look at often stands beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from extender.adapters import objects
from extender.core import cluster
from extender.core.names import CPU, PodUid, ResourceKey
from extender.core.units import Vector
from extender.sim.kinds import Json
from extender.sim.scheduler.pod_affinity import Term, required_terms

_NO_LABELS: Mapping[str, str] = {}
_MEMORY = ResourceKey("memory")
# What a container counts for in scoring (and there alone) that asks for none of it.
_USUAL_CPU = 100
_USUAL_MEMORY = 200 * 1024 * 1024
_ZONES = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
)
_encode = msgspec.json.Encoder().encode

PodKey = tuple[str, str]
"""Namespace and name."""


class SeenPod:
    """One version of a pod. `node` is where it is bound, or assumed to be; empty while it is neither."""

    __slots__ = (
        "_bytes",
        "affinity",
        "anti_affinity",
        "core",
        "gates",
        "key",
        "labels",
        "node",
        "nominated",
        "priority",
        "raw",
        "requests",
        "scored_cpu",
        "scored_memory",
        "start_time",
        "uid",
        "version",
    )

    def __init__(self, raw: Json) -> None:
        """Raises msgspec.ValidationError, UnreadableObject."""
        self.core = objects.to_pod(msgspec.convert(raw, objects.Pod), longest_wait=60.0)
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        self.raw = raw
        self.key: PodKey = (self.core.namespace, self.core.name)
        self.uid: PodUid = self.core.uid
        self.version = str(metadata.get("resourceVersion", ""))
        self.node = str(self.core.node or "")
        self.priority = self.core.priority
        self.requests: Vector = self.core.requests
        self.labels: Mapping[str, str] = metadata.get("labels") or _NO_LABELS
        self.nominated: str = status.get("nominatedNodeName") or ""
        self.gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ())
        self.start_time: str | None = status.get("startTime")
        affinity = spec.get("affinity") or {}
        self.affinity: tuple[Term, ...] = required_terms(affinity.get("podAffinity"), self.core.namespace, self.labels)
        self.anti_affinity: tuple[Term, ...] = required_terms(
            affinity.get("podAntiAffinity"), self.core.namespace, self.labels
        )
        self.scored_cpu = self.requests.get(CPU, 0) + _USUAL_CPU * _silent(spec, "cpu")
        self.scored_memory = self.requests.get(_MEMORY, 0) + _USUAL_MEMORY * _silent(spec, "memory")
        self._bytes: msgspec.Raw | None = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def scheduler(self) -> str:
        return self.core.scheduler

    @property
    def deleting(self) -> bool:
        return self.core.deleting

    @property
    def finished(self) -> bool:
        return self.core.finished

    def on(self, node: str) -> SeenPod:
        """The same pod, assumed to be on that node."""
        assumed = copy.copy(self)
        assumed.node = node
        assumed._bytes = None
        return assumed

    def encoded(self) -> msgspec.Raw:
        """As Go marshals the pod that the scheduler holds: no kind, no managed fields."""
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

    __slots__ = ("_bare", "_bytes", "advises", "annotations", "conditions", "core", "labels", "name", "raw", "zone")

    def __init__(self, raw: Json) -> None:
        """Raises msgspec.ValidationError, UnreadableObject."""
        self.core = objects.to_node(msgspec.convert(raw, objects.Node))
        self.raw = raw
        self.name = str(self.core.name)
        self.labels: Mapping[str, str] = self.core.labels
        self.annotations: Mapping[str, str] = raw["metadata"].get("annotations") or {}
        conditions = (raw.get("status") or {}).get("conditions") or ()
        self.conditions: Mapping[str, str] = {each["type"]: each.get("status", "") for each in conditions}
        zone, region = (next((self.labels[key] for key in keys if key in self.labels), "") for keys in _ZONES)
        self.zone = (region, zone)
        self.advises = any(taint.effect == "PreferNoSchedule" for taint in self.core.taints)
        self._bytes: msgspec.Raw | None = None
        self._bare: cluster.Node | None = None

    @property
    def bare(self) -> cluster.Node:
        """The node without its taints: what the plugin NodeUnschedulable looks at."""
        if self._bare is None:
            core = self.core
            self._bare = cluster.Node(core.name, core.allocatable, labels=core.labels, unschedulable=core.unschedulable)
        return self._bare

    def encoded(self) -> msgspec.Raw:
        """As Go marshals it."""
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
    """How many containers ask for none of it."""
    silent = 0
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        if resource not in (resources.get("requests") or ()) and resource not in (resources.get("limits") or ()):
            silent += 1
    return silent
