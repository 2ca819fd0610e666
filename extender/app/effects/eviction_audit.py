"""Eviction audit: counts and logs each pod that Escher evicted, with the proof that it was allowed.

It is called after the API server has accepted the eviction.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import structlog

from extender.core.cluster import Pod

_log = structlog.get_logger(__name__)


class EvictionKind(Enum):
    """Why a pod was evicted. The value is its name in metrics."""

    PART = "part"
    """The pod was bound as a part of a gang that was never whole."""
    PREEMPTED = "preempted"
    """A gang of higher priority gets its room."""
    PREEMPTED_BY_POD = "preempted_by_pod"
    """A pod of higher priority gets its room, and the room of the rest of its gang."""


Destroyed = Callable[[EvictionKind, Pod, str], None]
"""Takes the kind of eviction, the pod, and the proof, in words, that it was allowed."""


def logged(count: Callable[[str], None] = lambda kind: None) -> Destroyed:
    """Returns a `Destroyed` that writes one log line and counts one in the metric."""

    def destroyed(kind: EvictionKind, pod: Pod, why: str) -> None:
        _log.warning(
            "destroyed",
            kind=kind.value,
            pod=str(pod),
            uid=pod.uid,
            node=pod.node,
            owner=f"{pod.owner.kind}/{pod.owner.name}" if pod.owner is not None else "",
            why=why,
        )
        count(kind.value)

    return destroyed
