"""Departures: which nodes have left for good. One that reboots, or is registered anew, is away for a moment only.

Must not know what becomes of those that have left.
"""

from __future__ import annotations

from extender.core.bounded import Bounded
from extender.kube.names import NodeName

FOR_GOOD = 300.0
"""A node that has been away for so many seconds has left for good."""
_REMEMBERED = 65_536


class RemovedNodes:
    """Times are seconds of the steady clock. A node that was never there counts as away since the first news of any."""

    def __init__(self) -> None:
        self._began: float | None = None
        # One that is forgotten has been away since the beginning: those that left first are, and have left for good.
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
        """Of a node that is not there now."""
        since = self._left.get(node, self._began)
        return since is not None and now - since >= FOR_GOOD
