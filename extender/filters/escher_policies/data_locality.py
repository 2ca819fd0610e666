"""Data locality: pods need or prefer nodes with the data's ephemeral resource; no unit is used."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import DataLocality
from extender.core.policy import Concerns, Facts, NodeFilter, Refuse, Scorer
from extender.kube.names import NodeName


class PolicyDataLocality:
    name = "policy-data-locality"
    concerns = Concerns.GOVERNED
    decides = True

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        required = [
            (_having(each, pod.namespace, facts), _refusal(policy.name, each))
            for policy, near in of_type(pod.governed, DataLocality)
            if near.required
            for each in near.data
        ]
        if not required:
            return None
        return lambda node: next((refusal for having, refusal in required if node not in having), None)

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        preferred = [
            _having(each, pod.namespace, facts)
            for _, near in of_type(pod.governed, DataLocality)
            if not near.required
            for each in near.data
        ]
        return (lambda node: sum(node in having for having in preferred) / len(preferred)) if preferred else None


def _having(data: str, namespace: str, facts: Facts) -> frozenset[NodeName]:
    key = EphemeralName(namespace, data).key(facts.ledger.capacity.domain)
    return frozenset(facts.ledger.totals.providers.get(key, ()))


def _refusal(policy: str, data: str) -> Refuse:
    reason = f"policy {policy} (data-locality): the node does not have {data}"
    return Refuse(reason, preemption_helps=False, policy=policy)
