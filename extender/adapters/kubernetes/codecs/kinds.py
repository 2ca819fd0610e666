"""Kinds: the pods, nodes and objects of Escher's own kinds that it lists and watches."""

from __future__ import annotations

from typing import Any

from extender.adapters.kubernetes.codecs.schema import ObjectJson, Schema, path_of
from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.adapters.translation.objects import to_node, to_pod
from extender.adapters.translation.pod_sizes import outlined
from extender.app.contracts.kind import O
from extender.core.cluster import Node, Pod
from extender.kube import objects


def pods(longest_wait: float) -> WatchedKind[Pod]:
    """All pods, also finished ones, whose end is news. `longest_wait`: see `objects.to_pod`."""
    return WatchedKind("pods", "/api/v1/pods", objects.Pod, lambda pod: to_pod(pod, longest_wait), outlined)


def nodes() -> WatchedKind[Node]:
    return WatchedKind("nodes", "/api/v1/nodes", objects.Node, to_node)


def ours(schema: Schema[O, Any, Any], namespace: str | None = None) -> WatchedKind[O]:
    """Escher's own kind, in one namespace or in all. An unreadable field becomes its `problem`."""
    return WatchedKind(schema.plural, path_of(schema.plural, namespace), ObjectJson, schema.read)
