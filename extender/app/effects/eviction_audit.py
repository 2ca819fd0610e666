"""What was destroyed by us: each pod that the API server let us evict is counted, and told with its proof.

Called by whoever carried it out, after the API server has agreed; must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import structlog

from extender.core.cluster import Pod

_log = structlog.get_logger(__name__)


class EvictionAudit(Enum):
    """Why a pod was evicted. The value is its name in metrics."""

    PART = "part"
    """It was bound as a part of a gang that was never whole."""
    PREEMPTED = "preempted"
    """A gang of higher priority has its room."""
    PREEMPTED_BY_POD = "preempted_by_pod"
    """A pod of higher priority has its room, and that of the rest of its gang."""


Destroyed = Callable[[EvictionAudit, Pod, str], None]
"""Takes what was destroyed, and the proof, in words, that it was allowed."""


def logged(count: Callable[[str], None] = lambda kind: None) -> Destroyed:
    """Each is one line of the log and one of the metric."""

    def destroyed(kind: EvictionAudit, pod: Pod, why: str) -> None:
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
