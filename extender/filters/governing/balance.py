"""Balance: the policy's pods are spread evenly over places."""

from __future__ import annotations

from collections.abc import Hashable

from extender.core.cluster import Pod
from extender.core.equivalence import matching_of
from extender.core.gang_ask import GangAsk
from extender.core.governed import of_type
from extender.core.policy import Facts, Judge, Refuse
from extender.core.policy_types import Balance
from extender.filters.governing.standing import Standing, place_of
from extender.kube.names import NodeName


class PolicyBalance:
    name = "policy-balance"
    kept_by_plans = True

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        if not pod.governed or isinstance(pod.gang, GangAsk):
            return None
        open_to_it: list[tuple[set[str], str, Refuse]] = []
        for each, even in of_type(pod.governed, Balance):
            key = even.topology_key
            # Places where it could not be anyway are none.
            place_of_node = self._standing.open_nodes(key, pod, facts)
            counts = dict.fromkeys(place_of_node.values(), 0)
            for name, number in self._standing.of(each.name, pod, facts, living=True).items():
                if name in place_of_node:
                    counts[place_of_node[name]] += number
            most = -(-even.tasks // max(1, len(counts))) or min(counts.values(), default=0) + even.max_skew
            reason = f"policy {each.name} (balance): this place has its part of the policy's pods already"
            values = {value for value, number in counts.items() if number < most}
            open_to_it.append((values, key, Refuse(reason, preemption_helps=False, policy=each.name)))
        if not open_to_it:
            return None

        def judge(node: NodeName) -> Refuse | None:
            return next((why for values, key, why in open_to_it if place_of(node, key, facts) not in values), None)

        return judge

    def alike(self, pod: Pod) -> Hashable:
        if isinstance(pod.gang, GangAsk) or not any(of_type(pod.governed, Balance)):
            return None
        return pod.namespace, pod.governed, matching_of(pod)
