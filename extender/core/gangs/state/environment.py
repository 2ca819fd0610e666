"""What gangs are planned by, beside nodes, pods and the ledger. The gangs read it; whoever owns the tables keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.budgets import Budgets
from extender.core.daemons import Daemons
from extender.core.gangs.cycle.expected_members import ExpectedMembers
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.isolation import Isolation
from extender.core.pod_affinity_index import PodAffinityIndex


@dataclass(frozen=True, slots=True)
class Environment:
    """`staying`: those on the nodes for whose leaving nobody waits. `promises`: how many pods controllers make.
    `bystanders`: who is on which node, for those who want to be near or away from such. `budgets`: for disruptions.
    `isolation`: what namespaces may have. `daemons`: which pods come again on their node."""

    staying: ResidentPods = field(default_factory=lambda: ResidentPods({}))
    promises: ExpectedMembers = field(default_factory=ExpectedMembers)
    pod_affinity: PodAffinityIndex = field(default_factory=PodAffinityIndex)
    budgets: Budgets = field(default_factory=Budgets)
    isolation: Isolation = field(default_factory=Isolation)
    daemons: Daemons = field(default_factory=lambda: Daemons({}))
