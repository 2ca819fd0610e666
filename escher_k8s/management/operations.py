"""Operations of a transaction, and how the management API spells them.

The service decides whether a value is acceptable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from escher_k8s.answers import Owner

NodeSpec = str | Mapping[str, Any] | None
"""Nodes: `"node-3"`, `{"nvidia.com/gpu": 2}`, `{"labels": {...}}`; see `Calls.set_resource`."""
Mode = Literal["all-or-nothing", "incremental"]
Detection = Literal["resource-fit", "sequence-number"]


@dataclass(frozen=True, slots=True)
class SetResource:
    """As `Escher.set_resource`. `namespace` None: the client's."""

    name: str
    capacity: int
    node_spec: NodeSpec = None
    num_nodes: int | None = None
    ttl_seconds: float | None = None
    owner: Owner | None = None
    shared: bool = False
    if_version: str | None = None
    namespace: str | None = None
    export_to: Sequence[str] | None = None

    def body(self) -> dict[str, Any]:
        """The desired state, as the body of a single call."""
        owner = None if self.owner is None else {"name": self.owner.name, "uid": self.owner.uid}
        # Omitted if None: older services do not know exports.
        exports = {} if self.export_to is None else {"export_to": list(self.export_to)}
        return {
            "capacity": self.capacity,
            "node_spec": self.node_spec,
            "num_nodes": self.num_nodes,
            "ttl_seconds": self.ttl_seconds,
            "owner": owner,
            "shared": self.shared,
            **exports,
        }

    def spelt(self, namespace: str) -> dict[str, Any]:
        named = {"namespace": self.namespace or namespace, "name": self.name, "if_version": self.if_version}
        return {"op": "set", **named, **self.body()}


@dataclass(frozen=True, slots=True)
class Claim:
    """`units` of a node (cpu in cores, or quantities), held for `holder` for `ttl_seconds`."""

    holder: str
    node: str
    units: Mapping[str, float | str]
    ttl_seconds: float
    namespace: str | None = None

    def spelt(self, namespace: str) -> dict[str, Any]:
        return {
            "op": "claim",
            "namespace": self.namespace or namespace,
            "holder": self.holder,
            "node": self.node,
            "units": dict(self.units),
            "ttl_seconds": self.ttl_seconds,
        }


@dataclass(frozen=True, slots=True)
class Release:
    """What `holder` has claimed is free again."""

    holder: str
    namespace: str | None = None

    def spelt(self, namespace: str) -> dict[str, Any]:
        return {"op": "release", "namespace": self.namespace or namespace, "holder": self.holder}


Operation = SetResource | Claim | Release
