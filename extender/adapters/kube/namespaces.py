"""Namespaces, followed for their labels."""

from __future__ import annotations

from msgspec import Struct

from extender.adapters.kube.kinds import WatchedKind
from extender.core.cluster import Namespace

_PATH = "/api/v1/namespaces"


class NamespaceMetadata(Struct, rename="camel"):
    name: str
    resource_version: str = ""
    labels: dict[str, str] | None = None


class NamespaceJson(Struct):
    metadata: NamespaceMetadata


def _to_namespace(said: NamespaceJson) -> Namespace:
    return Namespace(said.metadata.name, said.metadata.labels or {})


def namespaces() -> WatchedKind[Namespace]:
    return WatchedKind("namespaces", _PATH, NamespaceJson, _to_namespace)
