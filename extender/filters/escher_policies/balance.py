"""Balance filter: the policy's pods are spread evenly over topology domains."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from extender.core.affinity.by_place import ByPlace
from extender.core.cluster import Pod
from extender.core.fit.equivalence import matching_of
from extender.core.gang_ask import GangAsk
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import MOST_TASKS, Balance
from extender.core.policy import Concerns, Facts, NodeFilter, Refuse
from extender.filters.escher_policies.standing import Standing


class PolicyBalance:
    name = "policy-balance"
    concerns = Concerns.GOVERNED
    kept_by_plans = True

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        if isinstance(pod.gang, GangAsk):
            return None
        found: ByPlace | None = None
        for each, even in of_type(pod.governed, Balance):
            places = self._standing.places(facts)
            label = places.by(even.topology_key)
            # Topology domains without a node open to the pod do not count.
            open_to_it = self._standing.open_nodes(pod, facts)
            where, size = label.of_node[open_to_it], len(label.values)
            is_place = np.bincount(where, minlength=size + 1)[:size] > 0
            there = self._standing.column(each.name, pod, facts, living=True)[open_to_it]
            counts = np.bincount(where, there, size + 1)[:size]
            most = -(-even.tasks // max(1, int(is_place.sum())))
            most = most or int(counts[is_place].min(initial=MOST_TASKS)) + even.max_skew
            closed = label.flags(elsewhere=True)
            closed[:-1] = ~is_place | (counts >= most)
            reason = f"policy {each.name} (balance): this topology domain already has its share of the policy's pods"
            found = found or ByPlace(places)
            found.refuse(even.topology_key, closed, Refuse(reason, preemption_helps=False, policy=each.name))
        return found

    def alike(self, pod: Pod) -> Hashable:
        if isinstance(pod.gang, GangAsk) or not any(of_type(pod.governed, Balance)):
            return None
        return pod.namespace, pod.governed, matching_of(pod)
