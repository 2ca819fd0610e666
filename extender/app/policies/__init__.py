"""The policies in force, called as one: filter, score, reserve, permit, events and requeue.

They are called in order. Dispatch only: extension points are found once, and a defect is reported and ends here.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.contracts.effects import PolicyFailed
from extender.app.policies.event_hooks import EventHooks
from extender.app.policies.fault_isolation import FaultIsolation
from extender.app.policies.filter_score import FilterScore
from extender.app.policies.requeue_hooks import RequeueHooks
from extender.app.policies.reserve_permit import ReservePermit
from extender.core.gangs.state.gang import GangEffect
from extender.core.policy import Facts, Policy


class Policies:
    """`filter_score`: where a pod may be. `reserve_permit`: what is held, and which pods may be bound.

    `event_hooks`: what policies hear, and what they want done. `requeue_hooks`: planning and waking."""

    def __init__(self, policies: Sequence[Policy], facts: Facts) -> None:
        self._containment = FaultIsolation()
        self.filter_score = FilterScore(policies, facts, self._containment)
        self.reserve_permit = ReservePermit(policies, facts, self._containment)
        self.event_hooks = EventHooks(policies, facts, self._containment)
        self.requeue_hooks = RequeueHooks(policies, self._containment)

    def take_effects(self) -> list[GangEffect | PolicyFailed]:
        """What is to be done since the last call."""
        taken: list[GangEffect | PolicyFailed] = [*self.event_hooks.take_effects()]
        taken += self._containment.failures.values()
        self._containment.failures.clear()
        return taken
