"""Removed nodes: which have left for good, and have not only rebooted or registered again."""

from __future__ import annotations

from extender.core.common.bounded import Bounded
from extender.kube.names import NodeName

FOR_GOOD = 300.0
"""Seconds of absence after which a node has left for good."""
_REMEMBERED = 65_536


class RemovedNodes:
    """Times are seconds of the steady clock.

    A node that was never there counts as away since the first news of any node."""

    def __init__(self) -> None:
        self._began: float | None = None
        # A forgotten node has been away since the beginning. The first to leave are forgotten, and have left for good.
        self._left: Bounded[NodeName, float] = Bounded(_REMEMBERED)

    def hear(self, now: float) -> None:
        """There is news of nodes."""
        if self._began is None:
            self._began = now

    def come(self, node: NodeName) -> None:
        self._left.pop(node, None)

    def leave(self, node: NodeName, now: float) -> None:
        self._left[node] = now

    def for_good(self, node: NodeName, now: float) -> bool:
        """Whether a node that is not there now has left for good."""
        since = self._left.get(node, self._began)
        return since is not None and now - since >= FOR_GOOD
