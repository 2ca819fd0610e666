"""Priority order: pods with higher priority go first; waiting raises the priority step by step.

A pod waits from its creation, as far as that is known. The newest known pod shows the API server's current time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from extender.core.cluster import Node, Pod
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import Priority
from extender.core.policy import Facts
from extender.kube.names import NodeName, PodUid

_FEW = 64
"""The least number of obsolete entries that is worth removing."""
_EXACT = 1.0
"""Seconds: the API server's times are whole seconds."""


class PolicyPriority:
    name = "policy-priority"

    def __init__(self) -> None:
        self.order_version = 0
        self._waiting: dict[PodUid, Priority] = {}
        self._since: dict[PodUid, tuple[float, float]] = {}
        """When each waiting pod was first seen, and when it was created."""
        self._aged: dict[PodUid, int] = {}
        """How many levels each waiting pod has gained."""
        self._due: list[tuple[float, PodUid]] = []
        """When each waiting pod gains its next level; some entries are obsolete."""
        self._behind = inf
        """The smallest offset seen between the local clock and new pods' creation times."""

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            return
        if fact.created and now - fact.created < self._behind - _EXACT:
            self._behind = now - fact.created
            for uid in self._waiting:
                self._begin(uid, now)
        if not fact.governed and fact.uid not in self._waiting:
            return
        found = next(of_type(fact.governed, Priority), None)
        if found is None or fact.node is not None:
            self.forget(fact)
        elif self._waiting.get(fact.uid) != found[1]:
            self._since.setdefault(fact.uid, (now, fact.created))
            self._waiting[fact.uid] = found[1]
            self._begin(fact.uid, now)

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Pod) and self._waiting.pop(fact.uid, None) is not None:
            del self._since[fact.uid], self._aged[fact.uid]

    def _begin(self, uid: PodUid, now: float) -> None:
        """Recomputes how long the pod has waited."""
        self._aged[uid] = max(0, int((now - self._start(uid)) // self._waiting[uid].ageing_seconds))
        self.order_version += 1
        heappush(self._due, (self._next(uid), uid))
        if len(self._due) > 2 * len(self._waiting) + _FEW:
            # Each change of a policy recomputes it, and earlier due times may be days away.
            self._due = [(self._next(each), each) for each in self._waiting if each in self._aged]
            heapify(self._due)

    def _start(self, uid: PodUid) -> float:
        seen, created = self._since[uid]
        return min(seen, created + self._behind) if created else seen

    def _next(self, uid: PodUid) -> float:
        return self._start(uid) + (self._aged[uid] + 1) * self._waiting[uid].ageing_seconds

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        return None if any(True for pod in members for _ in of_type(pod.governed, Priority)) else ()

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        levels = [self._waiting[pod.uid].priority + self._aged[pod.uid] for pod in members if pod.uid in self._waiting]
        return -float(max(levels, default=0))

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> Sequence[NodeName]:
        while (when := self.next_deadline()) is not None and when <= now:
            _, uid = heappop(self._due)
            self._aged[uid] += 1
            self.order_version += 1
            heappush(self._due, (self._next(uid), uid))
        return ()

    def _is_due(self, when: float, uid: PodUid) -> bool:
        return uid in self._waiting and when == self._next(uid)
