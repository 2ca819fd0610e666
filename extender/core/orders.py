"""Orders: what is to be done, and was done, so that somebody of higher priority has room that others hold.

Values only. A pod is named here with what was known of it when the order was given.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.names import GangKey, NodeName


@dataclass(frozen=True, slots=True)
class KeepRoomFor:
    """Effect: kube-scheduler is to keep room for the pod on that node (it was told so before, and has dropped it)."""

    pod: Pod
    node: NodeName


@dataclass(frozen=True, slots=True)
class LetRoomGo:
    """Effect: kube-scheduler is to keep room for these pods no more."""

    gang: GangKey
    members: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class EvictRest:
    """Effect: kube-scheduler has evicted `gone` members of the gang for the pod, which leaves fewer than its quorum.

    The rest is to be evicted: a gang leaves as a whole.
    """

    gang: GangKey
    preemptor: Pod
    rest: tuple[Pod, ...]
    gone: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """Event: kube-scheduler has evicted the victim for the pod, on our answer."""

    victim: Pod
    preemptor: Pod
