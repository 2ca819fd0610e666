"""Simulation request: changes, the question about them, and the result. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.app.contracts.explanation import Explanation
from extender.app.contracts.simulation_changes import SimulationChange
from extender.core.names import GangKey
from extender.kube.names import NodeName
from extender.kube.node_match import Toleration
from extender.kube.quantities import Vector

# -- the question


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsAsked:
    """Pods that are alike. `gang`: they are placed all or none; else each on its own."""

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
    """An existing pod that waits."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GangThere:
    """An existing gang that waits."""

    key: GangKey

    @property
    def namespace(self) -> str:
        return self.key.namespace


Question = PodsAsked | PodThere | GangThere


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod would be; None: on no node."""

    pod: str
    node: NodeName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result. `moved`: drained pods. `places`: queried pods; none if the gang does not fit."""

    fits: bool
    places: Sequence[Place] = ()
    moved: Sequence[Place] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """Changes, made in order, then a question. Without one: only what had to move."""

    changes: Sequence[SimulationChange]
    question: Question | None = None
