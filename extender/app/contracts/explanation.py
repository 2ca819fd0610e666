"""Explanation: why something waits, in numbers and in words. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.app.contracts.simulation_changes import Supposed
from extender.core.units import Short
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that the same rule excludes. `examples`: a few of them. `short`: the best of them, where it is room.
    `policy`: whose rule it is, of the policies that people create, by name; `type`: of which type that is."""

    rule: str
    count: int
    detail: str
    examples: Sequence[NodeName] = ()
    short: Short | None = None
    policy: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would help. `supposed`: the same as what-if takes it; it was supposed, and whoever waits had a place."""

    said: str
    supposed: Sequence[Supposed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a pod or gang waits, or where it is. `remedies`: what may help, most likely first, as far as rules tell;
    `tried`: what would, for it was tried on a copy of the cluster.

    `since`: since when it waits, and `reason_since`: for this reason, in seconds since the epoch; None where that is
    not known. `for_a_place`: whether it is a place that it waits for, and its like may be tried with others.
    """

    subject: str
    waits: bool
    summary: str
    groups: Sequence[NodeGroup] = ()
    remedies: Sequence[str] = ()
    tried: Sequence[Remedy] = ()
    since: float | None = None
    reason_since: float | None = None
    for_a_place: bool = False
    node: NodeName | None = None
    """Where the pod is bound."""
