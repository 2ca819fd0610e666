"""Nodes for tests: Node objects that are all alike."""

from __future__ import annotations

from collections.abc import Mapping

from kubesim.kinds import Json


def plain(
    count: int, offered: Mapping[str, str] | None = None, *, labels: Mapping[str, str] | None = None, start: int = 0
) -> list[Json]:
    """Node objects `node-0`, `node-1` ...; kubelets make them Ready. `offered`: as in `node`."""
    return [node(f"node-{number}", offered, labels=labels) for number in range(start, start + count)]


def node(name: str, offered: Mapping[str, str] | None = None, *, labels: Mapping[str, str] | None = None) -> Json:
    """A Node object. `offered`: capacity and allocatable; defaults are 8 CPU, 32Gi and 110 pods."""
    units = {"cpu": "8", "memory": "32Gi", "pods": "110", **(offered or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"capacity": units, "allocatable": units},
    }
