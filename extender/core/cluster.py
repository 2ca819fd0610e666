"""Pods and nodes, reduced to what a decision needs.

These are facts as the API server states them, translated once at the border. Must not know JSON or quantities as
text: units are whole numbers (see `units`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from extender.core.attempt import Attempt
from extender.core.constraints import Constraints
from extender.core.gang_ask import GangAsk, GroupAsk, MalformedAsk
from extender.core.matched_policy import MatchedPolicy
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import SelectorTerm, Taint, Toleration
from extender.kube.quantities import Vector

_NOTHING: Mapping[str, str] = MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod, as the pod names it: whether it is so says the API server, see `core.daemons`."""

    kind: str
    name: str
    uid: str
    group: str = ""
    """Its API group; empty: the core group."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `requests` holds what kube-scheduler would count, `pods: 1` included; `node` is None until it is bound."""

    uid: PodUid
    namespace: str
    name: str
    requests: Vector
    node: NodeName | None = None
    scheduler: str = ""
    priority: int = 0
    created: float = 0.0
    bound_at: float = 0.0
    """When it was bound, as far as the API server tells, in whole seconds since the epoch; 0: it is not bound."""
    deleting: bool = False
    preempts: bool = True
    """Whether pods of lower priority may be evicted for it."""
    gated: bool = False
    """It has scheduling gates of others: no scheduler looks at it yet, and we have no say in when that ends."""
    at_our_gate: bool = False
    """It has our scheduling gate: no scheduler looks at it until we take that off, which is done once."""
    finished: bool = False
    succeeded: bool = False
    """It is finished, and all that it ran has ended well."""
    labels: Mapping[str, str] = field(default_factory=_nothing)
    mirror: bool = False
    """It says that it stands for a static pod, which its kubelet runs whatever the API server says."""
    attempt: Attempt | None = None
    """With whom we bound it, as its own Binding told."""
    nominated: NodeName | None = field(default=None, compare=False)
    """The node that kube-scheduler keeps room for it on, as its status says."""
    preempted: bool = field(default=False, compare=False)
    """kube-scheduler has written on it that it is evicted for a pod of higher priority."""
    ready: bool = field(default=True, compare=False)
    """Its readiness, as disruption budgets count it."""
    starting: bool = field(default=False, compare=False)
    """Its containers have not all started: it may be evicted whatever a disruption budget says."""
    woken: bool = field(default=False, compare=False)
    """It bears the annotation by which we woke it last: that says nothing about the pod itself."""
    gang: GangAsk | GroupAsk | MalformedAsk | None = None
    annotations: Mapping[str, str] = field(default_factory=_nothing)
    """Those of our domain that policies may read."""
    owner: Owner | None = None
    node_selector: Mapping[str, str] = field(default_factory=_nothing)
    affinity: tuple[SelectorTerm, ...] = ()
    """Required node affinity: at least one term must hold; empty means no requirement."""
    tolerations: tuple[Toleration, ...] = ()
    constraints: Constraints | None = None
    """What it requires of the pods around it; None: nothing."""
    unknown_asks: tuple[str, ...] = ()
    """What it requires beside that and a planner cannot evaluate, in words; constant for the same pod."""
    governed: tuple[MatchedPolicy, ...] = ()
    """The policies that govern it: its labels and constraints are then as `core.policy_matching` has them."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `allocatable` is what kube-scheduler matches against, `capacity` what the node says it has."""

    name: NodeName
    allocatable: Vector
    capacity: Vector = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=_nothing)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    uid: str = ""
    version: str = ""
    """The API server's: tells which of two states of the node is older."""
