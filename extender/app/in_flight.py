"""Ordinary pods that kube-scheduler is placing: they have passed filter, and no bind has come for them yet.

We hear at its bind to which of its nodes such a pod goes; kube-scheduler counts it there at once. Room that is reserved
for a gang in these milliseconds is taken, as kube-scheduler sees it, until the pod's bind is refused. A member tried
before that fails, and sits out a back-off of a second. So it is woken when nobody can be in its way any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.gang import WakePod
from extender.core.ledger import Ledger
from extender.core.names import NodeName, PodUid

PLACED_WITHIN = 0.2
"""Seconds from the answer to filter to the call of bind. Some milliseconds; more for a pod that waits for a volume."""


@dataclass(frozen=True, slots=True)
class _Passed:
    pod: Pod
    nodes: Sequence[NodeName]
    until: float


@dataclass(frozen=True, slots=True)
class _Held:
    wake: WakePod
    behind: frozenset[PodUid]
    until: float


class InFlight:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._passed: dict[PodUid, _Passed] = {}
        self._held: list[_Held] = []

    def passed(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> None:
        """The pod goes to one of these nodes, or to none."""
        self._forget_overdue(now)
        self._passed.pop(pod.uid, None)
        self._passed[pod.uid] = _Passed(pod, nodes, now + PLACED_WITHIN)

    def ended(self, uid: PodUid) -> None:
        """The pod's bind has come, or it is rejected or gone."""
        self._passed.pop(uid, None)

    def holds_back(self, wake: WakePod, now: float) -> bool:
        """Whether somebody is in the way of the place that is reserved for the pod. If so `let_go` has it later."""
        self._forget_overdue(now)
        place = self._ledger.holding(wake.pod.uid) if self._passed else None
        if place is None:
            return False
        behind = frozenset(
            uid
            for uid, passed in self._passed.items()
            if self._ledger.short(place.node, passed.pod.requests, (uid,)) is not None and place.node in passed.nodes
        )
        if behind:
            self._held.append(_Held(wake, behind, now + PLACED_WITHIN))
        return bool(behind)

    def let_go(self, now: float) -> list[WakePod]:
        """Wakes that nobody is in the way of any more, or that have been held back for long enough."""
        free = [held for held in self._held if held.until <= now or self._passed.keys().isdisjoint(held.behind)]
        if free:
            self._held = [held for held in self._held if held not in free]
        return [held.wake for held in free]

    def next_deadline(self) -> float | None:
        return self._held[0].until if self._held else None

    def _forget_overdue(self, now: float) -> None:
        while self._passed:
            uid, oldest = next(iter(self._passed.items()))
            if oldest.until > now:
                return
            del self._passed[uid]
