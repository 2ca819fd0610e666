"""Anti-affinity: no place has two pods of the policy; or one of it and one of those that it keeps away from."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.governed import of_type
from extender.core.policy import Facts, Judge, Refuse
from extender.core.policy_types import AntiAffinity
from extender.filters.governing.standing import Standing, place_of, places
from extender.kube.names import NodeName


class PolicyAntiAffinity:
    name = "policy-anti-affinity"
    kept_by_plans = True

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        # Who is in a gang is planned by it, with all of its members.
        if not pod.governed or isinstance(pod.gang, GangAsk):
            return None
        # Many policies may name the same others: the first of them refuses.
        policies: dict[tuple[str, str], str] = {}
        for policy, other, key in self._apart(pod):
            policies.setdefault((other, key), policy)
        closed: dict[str, dict[str, tuple[int, Refuse]]] = {}
        for number, ((other, key), policy) in enumerate(policies.items()):
            refusal = number, _refusal(policy)
            for value in places(self._standing.of(other, pod, facts), key, facts):
                closed.setdefault(key, {}).setdefault(value, refusal)
        if not closed:
            return None

        def judge(node: NodeName) -> Refuse | None:
            found: tuple[int, Refuse] | None = None
            for key, values in closed.items():
                place = place_of(node, key, facts)
                refusal = None if place is None else values.get(place)
                if refusal is not None and (found is None or refusal[0] < found[0]):
                    found = refusal
            return None if found is None else found[1]

        return judge

    def alike(self, pod: Pod) -> Hashable:
        return (pod.namespace, pod.governed) if pod.governed and not isinstance(pod.gang, GangAsk) else None

    def _apart(self, pod: Pod) -> Iterator[tuple[str, str, str]]:
        """The policies that say so, whose pods are to be away, and by which label."""
        for each, keeps in of_type(pod.governed, AntiAffinity):
            for other in keeps.away_from or (each.name,):
                yield each.name, other, keeps.topology_key
        for own in pod.governed:
            for each, keeps in of_type(tuple(self._standing.keeping_away(own.name, pod)), AntiAffinity):
                yield each.name, each.name, keeps.topology_key


def _refusal(policy: str) -> Refuse:
    reason = f"policy {policy} (anti-affinity): a pod that it keeps apart from this one is in the same place"
    return Refuse(reason, preemption_helps=False, policy=policy)
