"""Eviction orders: effects and events of a preemption.

A pod in them is the pod as it was known when the order was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class OfGang:
    """An effect or event that concerns one gang."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class KeepRoomFor:
    """Effect: kube-scheduler should nominate this node again for the pod, after it dropped that."""

    pod: Pod
    node: NodeName


@dataclass(frozen=True, slots=True)
class LetRoomGo(OfGang):
    """Effect: kube-scheduler should no longer keep room for these pods."""

    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictRest(OfGang):
    """Effect: evict `rest`, because kube-scheduler evicted `gone` members: too few would stay.

    A gang leaves as a whole: fewer than its quorum are left. `despite_budgets`: the pod could not be placed otherwise,
    so members that a disruption budget protects are deleted.
    """

    preemptor: Pod
    rest: tuple[Pod, ...]
    gone: int
    despite_budgets: bool = False


@dataclass(frozen=True, slots=True)
class Preempted:
    """Event: kube-scheduler evicted the victim for the pod, as the extender answered."""

    victim: Pod
    preemptor: Pod
