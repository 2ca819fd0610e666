"""Namespaces: follows them for their labels."""

from __future__ import annotations

import msgspec
from msgspec import Struct, defstruct

from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.core.cluster import Namespace
from extender.core.safety_switches import LABELS, OBSERVE_LABEL

_READ = {f"label_{number}": label for number, label in enumerate((OBSERVE_LABEL, *LABELS.values()))}
_PATH = "/api/v1/namespaces"


_Labels = defstruct("_Labels", [(name, str | None, None) for name in _READ], rename=_READ)
"""The labels of a namespace that Escher reads; the decoder skips the others."""


class NamespaceMetadata(Struct, rename="camel"):
    name: str
    resource_version: str = ""
    labels: _Labels | None = None  # type: ignore[valid-type]


class NamespaceJson(Struct):
    metadata: NamespaceMetadata


def _to_namespace(said: NamespaceJson) -> Namespace:
    labels = msgspec.to_builtins(said.metadata.labels) or {}
    return Namespace(said.metadata.name, {label: value for label, value in labels.items() if value is not None})


def namespaces() -> WatchedKind[Namespace]:
    return WatchedKind("namespaces", _PATH, NamespaceJson, _to_namespace)
