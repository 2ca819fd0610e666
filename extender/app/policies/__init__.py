"""The policies in force, asked as one: whether a pod may be on a node, where best, and whether it may be bound now.

In the order in which they are asked. Dispatch and nothing else: which policy has which extension point is found out
once, and a defect of one policy is told and ends here (`containment`).
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.policies.event_hooks import EventHooks
from extender.app.policies.fault_isolation import FaultIsolation, PolicyFailed
from extender.app.policies.filter_score import FilterScore
from extender.app.policies.requeue_hooks import RequeueHooks
from extender.app.policies.reserve_permit import ReservePermit
from extender.core.gangs.state.gang import GangEffect
from extender.core.policy import Facts, Policy


class Policies:
    """`judging`: where a pod may be, and where best. `placing`: what is held for whom, and who may be bound.
    `following`: what policies are told, and what they want done. `settling`: who waits is planned for and woken."""

    def __init__(self, policies: Sequence[Policy], facts: Facts) -> None:
        self._containment = FaultIsolation()
        self.judging = FilterScore(policies, facts, self._containment)
        self.placing = ReservePermit(policies, facts, self._containment)
        self.following = EventHooks(policies, facts, self._containment)
        self.settling = RequeueHooks(policies, self._containment)

    def take_effects(self) -> list[GangEffect | PolicyFailed]:
        """What is to be done since this was asked last."""
        taken: list[GangEffect | PolicyFailed] = [*self.following.take_effects()]
        taken += self._containment.failures.values()
        self._containment.failures.clear()
        return taken
