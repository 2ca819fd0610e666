"""What policies that people create (EscherPolicies) say of pods, one type a file.

`core.policy_matching` says which of them govern a pod, and makes of what they say of pods around requirements of its
own, by which gangs are planned. kube-scheduler knows nothing of these: here single pods are judged by them, and all
pods by what policies say of nodes. A pod that nothing governs costs each of them one look-up.
"""

from __future__ import annotations

from extender.core.policy import Policy
from extender.filters.escher_policies.anti_affinity import PolicyAntiAffinity
from extender.filters.escher_policies.balance import PolicyBalance
from extender.filters.escher_policies.bin_packing import PolicyBinPacking
from extender.filters.escher_policies.co_location import PolicyCoLocation
from extender.filters.escher_policies.data_locality import PolicyDataLocality
from extender.filters.escher_policies.fair_share import PolicyFairShare
from extender.filters.escher_policies.feasible import PolicyFeasible
from extender.filters.escher_policies.named import PolicyNamed
from extender.filters.escher_policies.objective import PolicyObjective
from extender.filters.escher_policies.priority import PolicyPriority
from extender.filters.escher_policies.standing import Standing

POLICIES = "policy-"
"""How the names of these begin."""
NAMED = PolicyNamed.name
"""The rule that what a pod names is there."""


def made() -> list[Policy]:
    """One of each, for one `Scheduler`, in the order in which they are asked."""
    standing = Standing()
    return [
        standing,
        PolicyNamed(),
        PolicyDataLocality(),
        PolicyAntiAffinity(standing),
        PolicyCoLocation(standing),
        PolicyBalance(standing),
        PolicyFeasible(standing),
        PolicyBinPacking(standing),
        PolicyObjective(),
        PolicyPriority(),
        PolicyFairShare(),
    ]
