"""Supposition: what is supposed of a cluster, what is asked of it then, and what would be. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.app.contracts.explanation import Explanation
from extender.app.contracts.simulation_changes import (
    MOST_NODES,
    Added,
    Drained,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    Supposed,
    Uncordoned,
)
from extender.core.names import GangKey
from extender.kube.names import NodeName
from extender.kube.node_match import Toleration
from extender.kube.quantities import Vector

__all__ = [
    "MOST_NODES",
    "Added",
    "Drained",
    "Ended",
    "Offered",
    "PolicySet",
    "QuorumSet",
    "Released",
    "Supposed",
    "Uncordoned",
]

# -- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsAsked:
    """Pods that are alike. `gang`: as one, all or none; else each for itself."""

    namespace: str
    name: str
    count: int = 1
    gang: bool = False
    each: Vector
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodThere:
    """A pod that is there and waits."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GangThere:
    """A gang that is there and waits."""

    key: GangKey

    @property
    def namespace(self) -> str:
        return self.key.namespace


Question = PodsAsked | PodThere | GangThere


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod would be; None: nowhere."""

    pod: str
    node: NodeName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What would be. `moved`: the pods of drained nodes. `places`: those of the pods asked about; of a gang that does
    not fit, none. `explanation`: where some have no place, why."""

    fits: bool
    places: Sequence[Place] = ()
    moved: Sequence[Place] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Wondered:
    """One thing after the other is supposed, and then something is asked. Without a question: only what had to move."""

    supposed: Sequence[Supposed]
    question: Question | None = None
