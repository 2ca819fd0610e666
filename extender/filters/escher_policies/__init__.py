"""The filters, scores and orders of EscherPolicies, one type a file.

`core.policies.policy_matching` says which policies match a pod. It turns their rules about pods around into
requirements of its own form, by which gangs are planned. kube-scheduler does not know these: here single pods are
judged by them, and all pods by the rules about nodes. A pod without a matching policy costs each file one look-up.
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
"""The prefix of these policies' names."""
NAMED = PolicyNamed.name
"""The rule that the policies which a pod names exist."""


def made() -> list[Policy]:
    """One instance of each, for one `Scheduler`, in the order in which they are asked."""
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
