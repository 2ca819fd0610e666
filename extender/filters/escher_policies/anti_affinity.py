"""Anti-affinity filter: no topology domain has two pods that the policy keeps apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from extender.core.affinity.by_place import ByPlace, Numbers
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import AntiAffinity
from extender.core.policy import Concerns, Facts, NodeFilter, Refuse
from extender.filters.escher_policies.standing import Standing


class PolicyAntiAffinity:
    name = "policy-anti-affinity"
    kept_by_plans = True
    concerns = Concerns.GOVERNED

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        # A gang's plan places its members together.
        if isinstance(pod.gang, GangAsk):
            return None
        # Many policies may name the same other pods: the first of them refuses.
        policies: dict[tuple[str, str], str] = {}
        for policy, other, key in self._apart(pod):
            policies.setdefault((other, key), policy)
        places = self._standing.places(facts)
        found, there = ByPlace(places), dict[str, Numbers]()
        for (other, key), policy in policies.items():
            if other not in there:
                there[other] = np.flatnonzero(self._standing.column(other, pod, facts))
            if len(there[other]):
                label = places.by(key)
                closed = label.flags()
                closed[label.of_node[there[other]]] = True
                closed[-1] = False
                found.refuse(key, closed, _refusal(policy))
        return found or None

    def alike(self, pod: Pod) -> Hashable:
        return (pod.namespace, pod.governed) if pod.governed and not isinstance(pod.gang, GangAsk) else None

    def _apart(self, pod: Pod) -> Iterator[tuple[str, str, str]]:
        """Yields the policy, the policy whose pods must be elsewhere, and the topology key."""
        for each, keeps in of_type(pod.governed, AntiAffinity):
            for other in keeps.away_from or (each.name,):
                yield each.name, other, keeps.topology_key
        for own in pod.governed:
            for each, keeps in of_type(tuple(self._standing.keeping_away(own.name, pod)), AntiAffinity):
                yield each.name, each.name, keeps.topology_key


def _refusal(policy: str) -> Refuse:
    reason = f"policy {policy} (anti-affinity): a pod that must stay apart from this one is in the same topology domain"
    return Refuse(reason, preemption_helps=False, policy=policy)
