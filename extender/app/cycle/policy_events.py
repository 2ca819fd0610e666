"""Policy events: tell the `Scheduler` which EscherPolicies come into force, change or end."""

from __future__ import annotations

from extender.app.contracts.effects import Performer
from extender.app.contracts.kind import Named
from extender.app.cycle.scheduler import Scheduler
from extender.core.policies.policy_types import PolicyInForce


class GovernedByKeeper:
    def __init__(self, scheduler: Scheduler, performer: Performer) -> None:
        self._scheduler = scheduler
        self._performer = performer

    def put(self, name: Named, policy: PolicyInForce) -> None:
        """This version of the policy is in force now."""
        self._performer.do(self._scheduler.govern(name.namespace, name.name, policy))

    def drop(self, name: Named) -> None:
        """The policy is not in force any more."""
        self._performer.do(self._scheduler.govern(name.namespace, name.name, None))
