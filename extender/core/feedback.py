"""Feedback to the `Scheduler` and the policies: results of effects, and events of no object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gangs.state.eviction_orders import EvictRest
from extender.core.ledger.ledger import Holding
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Bound:
    """The Binding is written and states `attempt`; None: it states none, or this is not certain."""

    pod: PodUid
    node: NodeName
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class NotBound:
    """The pod's Binding could not be written. `for_good`: the pod is gone.

    `surely`: no earlier try with a lost answer wrote it either."""

    pod: PodUid
    for_good: bool
    surely: bool = False


@dataclass(frozen=True, slots=True)
class NotEvicted:
    """The eviction of a member failed: it stays."""

    pod: PodUid


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server accepted the pod's eviction, `for_gang` or for a pod: it counts as leaving."""

    pod: Pod
    for_gang: GangKey | None = None


@dataclass(frozen=True, slots=True)
class UnitStays:
    """`left` pods of the unit have been evicted for the gang; the rest cannot be evicted."""

    gang: GangKey
    unit: Sequence[Pod]
    left: int
    why: str


@dataclass(frozen=True, slots=True)
class RestStays:
    """`left` members of the gang have been evicted for the pod; the rest cannot be evicted."""

    order: EvictRest
    left: int
    why: str


@dataclass(frozen=True, slots=True)
class EvictionDone:
    """No more pods are evicted for that order of the gang."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class SwitchesChanged:
    """The safety switches changed. Forbidden acts have ended, and no task waits for them."""


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """Some EscherPolicies of the namespace have changed; its pods are already in the new form."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Expired:
    """An owner's holding has passed its deadline and is released."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class TurnedAwayBefore:
    """An earlier process of the service may have refused the pod: nothing else would wake it."""

    pod: Pod


Feedback = (
    Bound
    | NotBound
    | NotEvicted
    | Evicted
    | UnitStays
    | RestStays
    | EvictionDone
    | SwitchesChanged
    | PoliciesChanged
    | Expired
    | TurnedAwayBefore
)
