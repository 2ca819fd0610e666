"""A policy as a user would write it, outside the package: pods that are marked are bound one at a time, some seconds
apart, on nodes that are not closed to them, in the calmest place first.

    metadata: {annotations: {escher.dev/calm: "5"}}
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.core.cluster import Node, Pod
from extender.core.policy import Allow, Facts, NodeFilter, Permit, Refuse, Scorer, Wait
from extender.kube.names import PODS, NodeName, PodUid

CALM = "escher.dev/calm"
CLOSED = "example.com/closed"


class CalmHours:
    name = "calm-hours"

    def __init__(self) -> None:
        self.closed: set[NodeName] = set()
        self.turn: PodUid | None = None
        self.free_at = 0.0

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            (self.closed.add if CLOSED in fact.labels else self.closed.discard)(fact.name)

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self.closed.discard(fact.name)

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        if CALM not in pod.annotations:
            return None
        return lambda node: Refuse("the node is closed", preemption_helps=False) if node in self.closed else None

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        if CALM not in pod.annotations:
            return None
        return lambda node: 1 - facts.ledger.rows[node].held.get(PODS, 0) / 110

    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        seconds = pod.annotations.get(CALM)
        if seconds is None or self.turn == pod.uid:
            return Allow()
        if now < self.free_at:
            return Wait(now + 60, "another pod is settling in")
        self.turn, self.free_at = pod.uid, now + float(seconds)
        return Allow()

    def next_deadline(self) -> float | None:
        return self.free_at or None

    def tick(self, now: float) -> Sequence[NodeName]:
        if now >= self.free_at:
            self.free_at = 0.0
        return ()
