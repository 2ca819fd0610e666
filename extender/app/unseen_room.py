"""Binds of ordinary pods to a node that is full as far as we know: kube-scheduler and we know different things.

Mostly its watch is ahead of ours: somebody has left, and we hear of it in a moment. But one that has just been started
may be behind, and not know whom its predecessor has bound there: then two pods would have one place. Time tells: such a
bind waits until the room is there, and is refused if it does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from extender.core.names import NodeName, PodUid

OVERFULL = "the node has no room for the pod, as far as Escher knows: it is tried again"
WAITS = 2.0
"""For how many seconds: news of the watch are late by milliseconds, or, on a busy machine, by a second."""


@dataclass(frozen=True, slots=True)
class BindAnswered:
    """Effect: a bind that waits for room on that node is answered. Empty: it may be written."""

    pod: PodUid
    node: NodeName
    refusal: str


class UnseenRoom:
    """`claim`: the pod's units are held on the node (empty); or why not; None: the node is still full."""

    def __init__(self, claim: Callable[[PodUid, NodeName], str | None]) -> None:
        self._claim = claim
        self._waiting: dict[PodUid, tuple[NodeName, float]] = {}
        """Whose time is over first comes first."""
        self._at: dict[NodeName, dict[PodUid, None]] = {}

    def wait(self, uid: PodUid, node: NodeName, now: float) -> None:
        self._forget(uid)
        self._waiting[uid] = (node, now + WAITS)
        self._at.setdefault(node, {})[uid] = None

    def _forget(self, uid: PodUid) -> None:
        if uid in self._waiting:
            node, _ = self._waiting.pop(uid)
            del self._at[node][uid]
            if not self._at[node]:
                del self._at[node]

    def waiting(self) -> list[PodUid]:
        """Whose binds wait."""
        return list(self._waiting)

    def heed_nodes(self, gains: Collection[NodeName]) -> Iterator[BindAnswered]:
        """These nodes have gained room."""
        for uid in [uid for node in gains for uid in self._at.get(node, ())] if self._at else ():
            yield from self.heed_pod(uid)

    def heed_pod(self, uid: PodUid) -> Iterator[BindAnswered]:
        """The pod may have changed."""
        if uid in self._waiting:
            node, _ = self._waiting[uid]
            if (refusal := self._claim(uid, node)) is not None:
                yield from self.end(uid, refusal)

    def end(self, uid: PodUid, refusal: str) -> Iterator[BindAnswered]:
        """The pod's bind waits no more."""
        if uid in self._waiting:
            node, _ = self._waiting[uid]
            self._forget(uid)
            yield BindAnswered(uid, node, refusal)

    def overdue(self, now: float) -> Iterator[BindAnswered]:
        """Those that have waited long enough."""
        while self._waiting and (first := next(iter(self._waiting.items())))[1][1] <= now:
            yield from self.end(first[0], OVERFULL)

    def next_deadline(self) -> float | None:
        return next((until for _, until in self._waiting.values()), None)
