"""Policy events: the `Scheduler` hears of each EscherPolicy that comes into force, changes or ends.

Must not know where policies are kept, nor what any of them says.
"""

from __future__ import annotations

from extender.app.contracts.effects import Performer
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.kind import Named
from extender.core.policy_types import PolicyInForce


class GovernedByKeeper:
    def __init__(self, scheduler: Scheduler, performer: Performer) -> None:
        self._scheduler = scheduler
        self._performer = performer

    def put(self, name: Named, policy: PolicyInForce) -> None:
        """This is in force of it now."""
        self._performer.do(self._scheduler.govern(name.namespace, name.name, policy))

    def drop(self, name: Named) -> None:
        """Nothing is in force of it any more."""
        self._performer.do(self._scheduler.govern(name.namespace, name.name, None))
