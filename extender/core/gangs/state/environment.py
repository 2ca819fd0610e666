"""What gangs are planned by, beside nodes, pods and the ledger. The gangs read it; whoever owns the tables keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.budgets import Budgets
from extender.core.bystanders import Bystanders
from extender.core.daemons import Daemons
from extender.core.gangs.cycle.expected_members import Promises
from extender.core.gangs.placement.resident_pods import Staying
from extender.core.isolation import Isolation


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`staying`: those on the nodes for whose leaving nobody waits. `promises`: how many pods controllers make.
    `bystanders`: who is on which node, for those who want to be near or away from such. `budgets`: for disruptions.
    `isolation`: what namespaces may have. `daemons`: which pods come again on their node."""

    staying: Staying = field(default_factory=lambda: Staying({}))
    promises: Promises = field(default_factory=Promises)
    bystanders: Bystanders = field(default_factory=Bystanders)
    budgets: Budgets = field(default_factory=Budgets)
    isolation: Isolation = field(default_factory=Isolation)
    daemons: Daemons = field(default_factory=lambda: Daemons({}))
