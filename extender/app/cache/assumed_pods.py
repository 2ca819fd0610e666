"""Ordinary pods that kube-scheduler is placing: they passed filter, and may not be bound yet.

Escher learns such a pod's node from the watch, or from its bind if Escher is asked for it; kube-scheduler counts it
there at once. Room reserved for a gang in these milliseconds is taken, as kube-scheduler sees it, unless the pod's bind
is refused. A member tried before that fails, and backs off for a second. So it is woken when no pod can be in its way
any more.

Thousands may be under way. They are compared by what they ask for, not one by one. A wake that is held back waits for
the last pod in its way, and looks for another only when that one has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from extender.core.cluster import Pod
from extender.core.fit.fit import Need, need_of
from extender.core.gangs.state.gang import WakePod
from extender.core.ledger.ledger import Ledger
from extender.kube.names import NodeName, PodUid

PLACED_WITHIN = 0.2
"""Seconds from the answer to filter to the bind: some milliseconds, more if a volume is awaited."""
FEW = 16
"""A pod that may go to more nodes than these counts as one that may go to any."""
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class _Passed:
    pod: Pod
    number: int
    need: Need | None
    """None: the pod goes to one of `nodes`; else to any."""
    nodes: Collection[NodeName]
    until: float


@dataclass(frozen=True, slots=True)
class _Held:
    wake: WakePod
    number: int
    """Pods that passed later found its room reserved."""
    node: NodeName
    until: float


class AssumedPods:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers = count()
        self._passed: dict[PodUid, _Passed] = {}
        """Oldest first, as are those of `_anywhere`."""
        self._anywhere: dict[Need, dict[PodUid, None]] = {}
        self._at: dict[NodeName, dict[PodUid, None]] = {}
        self._held: dict[int, _Held] = {}
        self._free: dict[int, _Held] = {}
        """Held wakes that no pod is in the way of any more."""
        self._behind: dict[PodUid, list[_Held]] = {}
        """Held wakes, by one pod that is in their way."""

    def passed(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> None:
        """The pod goes to one of these nodes, or to none."""
        self._forget_overdue(now)
        self.ended(pod.uid)
        number = next(self._numbers)
        if len(nodes) <= FEW:
            passed = _Passed(pod, number, None, frozenset(nodes), now + PLACED_WITHIN)
            for node in passed.nodes:
                self._at.setdefault(node, {})[pod.uid] = None
        else:
            need = need_of(pod.requests)
            passed = _Passed(pod, number, need, (), now + PLACED_WITHIN)
            self._anywhere.setdefault(need, {})[pod.uid] = None
        self._passed[pod.uid] = passed

    def ended(self, uid: PodUid) -> None:
        """The pod's bind has come, or the pod is rejected or gone."""
        passed = self._passed.pop(uid, None)
        if passed is None:
            return
        if passed.need is not None:
            _drop(self._anywhere, passed.need, uid)
        for node in passed.nodes:
            _drop(self._at, node, uid)
        for held in self._behind.pop(uid, ()):
            self._look_for_another(held)

    def holds_back(self, wake: WakePod, now: float) -> bool:
        """Whether a pod is in the way of the reserved room; `let_go` then returns the wake."""
        self._forget_overdue(now)
        place = self._ledger.holding(wake.pod.uid)
        if place is None:
            return False
        held = _Held(wake, next(self._numbers), place.node, now + PLACED_WITHIN)
        if (in_the_way := self._in_the_way(held)) is None:
            return False
        self._held[held.number] = held
        self._behind.setdefault(in_the_way, []).append(held)
        return True

    def _look_for_another(self, held: _Held) -> None:
        if (in_the_way := self._in_the_way(held)) is not None:
            self._behind.setdefault(in_the_way, []).append(held)
        else:
            self._free[held.number] = held

    def _in_the_way(self, held: _Held) -> PodUid | None:
        """The last passed pod that would leave too little for the reservation if it went there."""
        for uid in reversed(self._at.get(held.node, {})):
            passed = self._passed[uid]
            if passed.number < held.number and self._is_short(held.node, passed.pod):
                return uid
        for alike in self._anywhere.values():
            if self._is_short(held.node, self._passed[next(iter(alike))].pod):
                for uid in reversed(alike):
                    if self._passed[uid].number < held.number:
                        return uid
        return None

    def _is_short(self, node: NodeName, pod: Pod) -> bool:
        return self._ledger.rows.short(node, pod.requests, (pod.uid,)) is not None

    def let_go(self, now: float) -> list[WakePod]:
        """Wakes that no pod is in the way of any more: it was placed, or its time is over."""
        self._forget_overdue(now)
        if not self._free:
            return []
        free, self._free = self._free, {}
        for number in free:
            del self._held[number]
        return [free[number].wake for number in sorted(free)]

    def next_deadline(self) -> float | None:
        return next((held.until for held in self._held.values()), None) if self._held else None

    def _forget_overdue(self, now: float) -> None:
        while self._passed:
            uid, oldest = next(iter(self._passed.items()))
            if oldest.until > now:
                return
            self.ended(uid)


def _drop(index: dict[K, dict[PodUid, None]], key: K, uid: PodUid) -> None:
    uids = index[key]
    del uids[uid]
    if not uids:
        del index[key]
