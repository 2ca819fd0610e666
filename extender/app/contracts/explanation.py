"""Explanation: why something waits, in numbers and in words. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.app.contracts.simulation_changes import SimulationChange
from extender.core.ledger.units import Short
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that the same rule excludes. `examples`: a few; `short`: where least room is missing.

    `policy`, `type`: name and type of the EscherPolicy whose rule it is."""

    rule: str
    count: int
    detail: str
    examples: Sequence[NodeName] = ()
    short: Short | None = None
    policy: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy. `changes`: those for what-if, which gave a placement when they were tried."""

    said: str
    changes: Sequence[SimulationChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a pod or gang waits, or where it is.

    `remedies`: what may help by the rules, most likely first; `tried`: what helped on a copy of the cluster. `since`:
    since when it waits, `reason_since`: for this reason, in seconds since the epoch; None if not known. `for_a_place`:
    whether it waits for a placement, so that more remedies can be tried."""

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
