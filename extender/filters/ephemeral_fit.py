"""Filter and score: the ephemeral resources that a pod asks for must be free in the ledger."""

from __future__ import annotations

from functools import cache

from extender.core.cluster import Pod
from extender.core.ledger.units import Short
from extender.core.names import in_domain
from extender.core.policy import Concerns, Facts, NodeFilter, OnlyTheseNodes, Refuse, Scorer
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

REASON = "requested ephemeral resources are not free on this node"
ABSENT = "requested ephemeral resources do not exist on this node"


class EphemeralFit:
    name = "ephemeral-fit"
    concerns = Concerns.EPHEMERAL
    kept_by_plans = True

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        ledger = facts.ledger
        asked = _asked(pod, ledger.capacity.domain)
        if not any(asked.values()):
            return None
        first = next((resource, units) for resource, units in asked.items() if units > 0)
        giving_way = facts.giving_way(pod)

        @cache
        def refusal(resource: ResourceKey, asked: int, free: int, exists: bool) -> Refuse:
            short = Short(resource, asked, free)
            # Preemption frees what other pods hold; it creates no resource.
            return Refuse(REASON, short) if exists else Refuse(ABSENT, short, preemption_helps=False)

        def judge(node: NodeName) -> Refuse | None:
            found = ledger.rows.lacking(node, asked, (pod.uid, *giving_way.get(node, ())))
            if found is None:
                return None
            return refusal(*found, node in ledger.totals.providers.get(found[0], ()))

        # Most of the thousands of nodes have none of it.
        return OnlyTheseNodes(ledger.totals.providers.get(first[0], {}), judge, refusal(*first, 0, False))

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        """The emptier the node, the better, by the scarcest resource that the pod asks for."""
        ledger = facts.ledger
        if not (asked := _asked(pod, ledger.capacity.domain)):
            return None

        def score(node: NodeName) -> float:
            row = ledger.rows.get(node)
            if row is None:
                return 0.0
            shares = ((row.capacity[r] - row.held.get(r, 0)) / row.capacity[r] for r in asked if row.capacity.get(r))
            return max(0.0, min(shares, default=0.0))

        return score


def _asked(pod: Pod, domain: str) -> Vector:
    return {resource: units for resource, units in pod.requests.items() if in_domain(resource, domain)}
