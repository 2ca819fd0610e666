"""Environment: what the planner reads beside nodes, pods and the ledger; its owner updates it."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.affinity.pod_affinity_index import PodAffinityIndex
from extender.core.budgets import Budgets
from extender.core.daemons import Daemons
from extender.core.gangs.cycle.expected_members import ExpectedMembers
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.tenancy.isolation import Isolation


@dataclass(frozen=True, slots=True)
class Environment:
    """`staying`: resident pods. `promises`: how many pods controllers create.

    `pod_affinity`: which pods are on which node. `daemons`: which pods are created again on their node."""

    staying: ResidentPods = field(default_factory=lambda: ResidentPods({}))
    promises: ExpectedMembers = field(default_factory=ExpectedMembers)
    pod_affinity: PodAffinityIndex = field(default_factory=PodAffinityIndex)
    budgets: Budgets = field(default_factory=Budgets)
    isolation: Isolation = field(default_factory=Isolation)
    daemons: Daemons = field(default_factory=lambda: Daemons({}))
