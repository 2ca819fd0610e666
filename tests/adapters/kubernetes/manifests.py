"""Manifests: objects as the API server answers them, with what a test does not care about filled in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def pod(name: str = "p1", version: int | str = 1, *, cpu: Any = "100m", **spec: Any) -> Json:
    """A pod in namespace `team-a` with one container; its UID is `uid-<name>`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-21T06:00:00Z",
        },
        "spec": {
            "schedulerName": "escher",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def node(name: str = "n1", version: int | str = 1, **status: Any) -> Json:
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": {"zone": "z1"}},
        "spec": {},
        "status": {"capacity": offered, "allocatable": offered, **status},
    }


def resource(name: str = "data1", spec: Any = None, version: int | str = 1, **more: Any) -> Json:
    return {
        "apiVersion": "escher.dev/v1alpha1",
        "kind": "EphemeralResource",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "generation": 3,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-21T06:00:00Z",
        },
        "spec": {"nodes": {"n1": 2}} if spec is None else spec,
        **more,
    }


def page(items: Sequence[Json], version: int | str = 10, following: str = "") -> bytes:
    metadata = {"resourceVersion": str(version)} | ({"continue": following} if following else {})
    return encode({"kind": "List", "metadata": metadata, "items": list(items)})


def event(kind: str, item: Json) -> bytes:
    return encode({"type": kind, "object": item})


def bookmark(version: int | str) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}})


def status(code: int, message: str, **more: Any) -> Json:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, **more}


def encode(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
