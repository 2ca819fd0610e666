"""Builds the events of pods and nodes from Kubernetes' JSON, with the fields that an ESL reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from extender.core.cluster import Node, Owner, Pod
from extender.esl.base import NodeSeen, PodSeen
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import Taint
from extender.kube.quantities import count


def pod_seen(manifest: Mapping[str, Any]) -> PodSeen:
    """The event of a pod."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    requests: dict[ResourceKey, int] = {}
    for container in spec["containers"]:
        for key, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            requests[ResourceKey(key)] = requests.get(ResourceKey(key), 0) + count(key, str(quantity))
    controller = next((each for each in metadata.get("ownerReferences") or [] if each.get("controller")), None)
    phase, node, created = status.get("phase"), spec.get("nodeName"), metadata.get("creationTimestamp")
    return PodSeen(
        Pod(
            uid=PodUid(metadata["uid"]),
            namespace=metadata["namespace"],
            name=metadata["name"],
            requests={key: units for key, units in requests.items() if units},
            node=NodeName(node) if node else None,
            created=datetime.fromisoformat(created).timestamp() if created else 0.0,
            deleting=bool(metadata.get("deletionTimestamp")),
            finished=phase in ("Succeeded", "Failed"),
            succeeded=phase == "Succeeded",
            labels=metadata.get("labels") or {},
            owner=None if controller is None else Owner(controller["kind"], controller["name"], controller["uid"]),
            node_selector=spec.get("nodeSelector") or {},
        )
    )


def node_seen(manifest: Mapping[str, Any]) -> NodeSeen:
    """The event of a node."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    taints = spec.get("taints") or []
    allocatable = status.get("allocatable") or {}
    return NodeSeen(
        Node(
            name=NodeName(metadata["name"]),
            allocatable={ResourceKey(key): count(key, str(quantity)) for key, quantity in allocatable.items()},
            labels=metadata.get("labels") or {},
            taints=tuple(Taint(each["key"], each.get("value") or "", each["effect"]) for each in taints),
            unschedulable=bool(spec.get("unschedulable")),
            uid=metadata.get("uid") or "",
        )
    )
