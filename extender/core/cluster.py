"""Pods and nodes, reduced to what a decision needs.

These are facts as the API server states them, translated once at the border. Units are whole numbers (see `units`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from extender.core.affinity.constraints import Constraints
from extender.core.attempt import Attempt
from extender.core.common.value import value
from extender.core.gang_ask import GangAsk, GroupAsk, MalformedAsk
from extender.core.policies.matched_policy import MatchedPolicy
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import SelectorTerm, Taint, Toleration
from extender.kube.quantities import Vector

_NOTHING: Mapping[str, str] = MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod, as the pod claims; `core.daemons` verifies the claim."""

    kind: str
    name: str
    uid: str
    group: str = ""
    """Its API group; empty: the core group."""


@value
class Pod:
    """A pod. `requests`: as kube-scheduler counts, with `pods: 1`. `node`: None until bound."""

    uid: PodUid
    namespace: str
    name: str
    requests: Vector
    node: NodeName | None = None
    scheduler: str = ""
    priority: int = 0
    created: float = 0.0
    bound_at: float = 0.0
    """Whole seconds since the epoch, as the API server states; 0: the pod is not bound."""
    deleting: bool = False
    preempts: bool = True
    """Whether pods of lower priority may be evicted for it."""
    gated: bool = False
    """It has foreign scheduling gates. Schedulers ignore it until others remove them."""
    at_our_gate: bool = False
    """It has Escher's scheduling gate: schedulers ignore it until Escher removes that, once."""
    finished: bool = False
    succeeded: bool = False
    """It has finished and all of its containers succeeded."""
    labels: Mapping[str, str] = field(default_factory=_nothing)
    mirror: bool = False
    """It claims to represent a static pod, which its kubelet runs whatever the API server says."""
    attempt: Attempt | None = None
    """The attempt in which Escher bound it, as its own Binding states."""
    nominated: NodeName | None = field(default=None, compare=False)
    """The node on which kube-scheduler keeps room for it, from its status."""
    preempted: bool = field(default=False, compare=False)
    """kube-scheduler has marked it as evicted for a pod of higher priority."""
    ready: bool = field(default=True, compare=False)
    """Its readiness, as disruption budgets count it."""
    starting: bool = field(default=False, compare=False)
    """Its containers have not all started: it may be evicted whatever a disruption budget says."""
    woken: bool = field(default=False, compare=False)
    """It has the annotation of Escher's last wake, which says nothing about the pod itself."""
    gang: GangAsk | GroupAsk | MalformedAsk | None = None
    annotations: Mapping[str, str] = field(default_factory=_nothing)
    """Annotations of Escher's domain that policies may read."""
    owner: Owner | None = None
    node_selector: Mapping[str, str] = field(default_factory=_nothing)
    affinity: tuple[SelectorTerm, ...] = ()
    """Required node affinity: at least one term must hold; empty means no requirement."""
    tolerations: tuple[Toleration, ...] = ()
    constraints: Constraints | None = None
    """What it requires of the pods around it; None: nothing."""
    unknown_asks: tuple[str, ...] = ()
    """Other requirements, which a planner cannot evaluate, in words; constant for a pod."""
    governed: tuple[MatchedPolicy, ...] = ()
    """EscherPolicies that match it; `core.policies.policy_matching` has set labels and constraints."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `allocatable` is what kube-scheduler uses, `capacity` what the node reports."""

    name: NodeName
    allocatable: Vector
    capacity: Vector = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=_nothing)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    uid: str = ""
    version: str = ""
    """The API server's resource version: which of two states of the node is older."""
