"""Explanation: why something waits, in numbers and in words. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.core.units import Short
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that the same rule excludes. `examples`: a few of them. `short`: the best of them, where it is room."""

    rule: str
    count: int
    detail: str
    examples: Sequence[NodeName] = ()
    short: Short | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a pod or gang waits, or where it is. `remedies`: what would help, most likely first."""

    subject: str
    waits: bool
    summary: str
    groups: Sequence[NodeGroup] = ()
    remedies: Sequence[str] = ()
    node: NodeName | None = None
    """Where the pod is bound."""
