"""Bodies that several subjects send, and where they are sent."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
PODS = f"{NAMESPACES}/asked/pods"
"""Where most subjects about pods have theirs."""

MOMENT = "2026-01-01T00:00:00Z"
OTHER_UID = "11111111-1111-1111-1111-111111111111"
ONE_AS_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MANY_AS_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def container(**more: Any) -> Json:
    return {"name": "c", "image": "pause:3.10", **more}


def pod(name: str, *containers: Json, **spec: Any) -> Json:
    return pod_with({"name": name}, *containers, **spec)


def pod_with(metadata: Json, *containers: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def binding(name: str, node: str = "n1", **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
