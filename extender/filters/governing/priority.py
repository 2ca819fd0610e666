"""Priority: who waits and has a higher priority goes first; who has waited for a time counts as one higher, and so on.

Pods wait from when they were first seen; where this life of the service has begun meanwhile, from as long before as
they were created before the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from extender.core.cluster import Node, Pod
from extender.core.governed import of_type
from extender.core.policy import Facts
from extender.core.policy_types import Priority
from extender.kube.names import NodeName, PodUid


class PolicyPriority:
    name = "policy-priority"

    def __init__(self) -> None:
        self.order_version = 0
        self._since: dict[PodUid, float] = {}
        self._aged: dict[PodUid, int] = {}
        """As how much higher each of them counts."""
        self._waiting: dict[PodUid, Priority] = {}
        self._due: list[tuple[float, PodUid]] = []
        """When each of them counts as one higher next; some of those that wait no more."""
        self._newest = 0.0

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            return
        self._newest = max(self._newest, fact.created)
        if not fact.governed and fact.uid not in self._waiting:
            return
        found = next(of_type(fact.governed, Priority), None)
        if found is None or fact.node is not None:
            self.forget(fact)
        elif self._waiting.get(fact.uid) != found[1]:
            since = self._since.setdefault(fact.uid, now - (self._newest - fact.created))
            self._waiting[fact.uid] = found[1]
            self._aged[fact.uid] = int((now - since) // found[1].ageing_seconds)
            self._set_due(fact.uid)
            self.order_version += 1

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Pod) and self._waiting.pop(fact.uid, None) is not None:
            del self._since[fact.uid], self._aged[fact.uid]

    def _set_due(self, uid: PodUid) -> None:
        when = self._since[uid] + (self._aged[uid] + 1) * self._waiting[uid].ageing_seconds
        heappush(self._due, (when, uid))

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        levels = [self._waiting[pod.uid].priority + self._aged[pod.uid] for pod in members if pod.uid in self._waiting]
        return -float(max(levels, default=0))

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due_then(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> Sequence[NodeName]:
        while self._due and self._due[0][0] <= now:
            when, uid = heappop(self._due)
            if self._is_due_then(when, uid):
                self._aged[uid] += 1
                self._set_due(uid)
                self.order_version += 1
        return ()

    def _is_due_then(self, when: float, uid: PodUid) -> bool:
        """Whether it still waits, by what it waited by when that was said."""
        if uid not in self._waiting:
            return False
        return when == self._since[uid] + (self._aged[uid] + 1) * self._waiting[uid].ageing_seconds
