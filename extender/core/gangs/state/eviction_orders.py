"""Orders: what is to be done, and was done, so that somebody of higher priority has room that others hold.

Values only. A pod is named here with what was known of it when the order was given.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class OfGang:
    """What is to be done, or has happened, about one gang."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class KeepRoomFor:
    """Effect: kube-scheduler is to keep room for the pod on that node (it was told so before, and has dropped it)."""

    pod: Pod
    node: NodeName


@dataclass(frozen=True, slots=True)
class LetRoomGo(OfGang):
    """Effect: kube-scheduler is to keep room for these pods no more."""

    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictRest(OfGang):
    """Effect: kube-scheduler has evicted `gone` members of the gang for the pod, which leaves fewer than its quorum.

    The rest is to be evicted: a gang leaves as a whole. `despite_budgets`: there was no other way for the pod, so those
    that a disruption budget protects are deleted.
    """

    preemptor: Pod
    rest: tuple[Pod, ...]
    gone: int
    despite_budgets: bool = False


@dataclass(frozen=True, slots=True)
class Preempted:
    """Event: kube-scheduler has evicted the victim for the pod, on our answer."""

    victim: Pod
    preemptor: Pod
