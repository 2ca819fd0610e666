"""Feedback: what became of effects, and what else the `Scheduler` and the policies are told that is no object of the
cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.core.attempt import Attempt
from extender.core.cluster import Pod
from extender.core.gangs.state.eviction_orders import EvictRest
from extender.core.ledger import Holding
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod's Binding is written, and says that it is of that attempt; None: it says nothing, or not for sure."""

    pod: PodUid
    node: NodeName
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class NotBound:
    """The pod's Binding could not be written. `for_good`: the pod is gone; `surely`: it never was written, either, by a
    try whose answer is lost."""

    pod: PodUid
    for_good: bool
    surely: bool = False


@dataclass(frozen=True, slots=True)
class NotEvicted:
    """A member that was to be evicted stays."""

    pod: PodUid


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server has taken the pod's eviction, `for_gang` or for a pod: it counts as leaving from now on."""

    pod: Pod
    for_gang: GangKey | None = None


@dataclass(frozen=True, slots=True)
class UnitStays:
    """The unit was to leave for that gang: `left` of it have, and the others cannot be made to."""

    gang: GangKey
    unit: Sequence[Pod]
    left: int
    why: str


@dataclass(frozen=True, slots=True)
class RestStays:
    """`left` members of the gang have gone for the pod, and the others cannot be made to."""

    order: EvictRest
    left: int
    why: str


@dataclass(frozen=True, slots=True)
class EvictionDone:
    """Nobody else is evicted for that order of the gang."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class BrakeChanged:
    """The switches have changed. What they do not allow any more has ended, and nobody is left to wait for it."""


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """Of the policies that people create in the namespace some are others; its pods are known as these have them."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Expired:
    """What was held for an owner has passed its deadline, and is held no more."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class TurnedAwayBefore:
    """An earlier life of the service may have turned the pod away: nobody else would wake it."""

    pod: Pod


Feedback = (
    Bound
    | NotBound
    | NotEvicted
    | Evicted
    | UnitStays
    | RestStays
    | EvictionDone
    | BrakeChanged
    | PoliciesChanged
    | Expired
    | TurnedAwayBefore
)
