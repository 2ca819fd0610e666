"""Co-location: all pods of the policy are in the place of the first; which, where it is told how many there will be,
has room for all of them, and else is the emptiest."""

from __future__ import annotations

from collections.abc import Hashable

from extender.core.cluster import Pod
from extender.core.equivalence import equivalence_of
from extender.core.fit import NOTHING, asked_of, copies
from extender.core.gang_ask import GangAsk
from extender.core.governed import of_type
from extender.core.policy import Facts, Judge, Refuse, Scorer
from extender.core.policy_types import CoLocation
from extender.filters.governing.bin_packing import fullness
from extender.filters.governing.standing import Standing, place_of, places
from extender.kube.names import NodeName
from extender.kube.node_match import accepts


class PolicyCoLocation:
    name = "policy-co-location"

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        if not pod.governed:
            return None
        allowed: list[tuple[set[str], str, Refuse]] = []
        for each, near in of_type(pod.governed, CoLocation):
            there = self._standing.of(each.name, pod, facts)
            if not there and near.size > 1:
                # A gang is planned where its quorum has room; that all have is whether they would if others left.
                large = _places_for(near.size, near.topology_key, pod, facts, emptied=isinstance(pod.gang, GangAsk))
                allowed.append((large, near.topology_key, _refusal(each.name, "no place here has room for all")))
            elif isinstance(pod.gang, GangAsk):
                # Planned with all of its gang; a place of another that waits is as good as none.
                continue
            elif there:
                values = places(there, near.topology_key, facts)
                allowed.append((values, near.topology_key, _refusal(each.name, "its other pods are in another place")))
            else:
                anywhere = places(facts.nodes.keys(), near.topology_key, facts)
                allowed.append((anywhere, near.topology_key, _refusal(each.name, "the node is in no place")))
        if not allowed:
            return None

        def judge(node: NodeName) -> Refuse | None:
            return next((why for values, key, why in allowed if place_of(node, key, facts) not in values), None)

        return judge

    def alike(self, pod: Pod) -> Hashable:
        near = list(of_type(pod.governed, CoLocation))
        if not near:
            return None
        in_gang = isinstance(pod.gang, GangAsk)
        like = equivalence_of(pod) if any(each.size > 1 for _, each in near) else None
        return pod.namespace, pod.governed, in_gang, like

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        """Who comes first, and is not told how many follow, is best off on the emptiest node: there most have room."""
        near = of_type(pod.governed, CoLocation)
        if not any(each.size < 2 and not self._standing.of(policy.name, pod, facts) for policy, each in near):
            return None
        return lambda node: 1.0 - fullness(node, facts)


def _places_for(size: int, key: str, pod: Pod, facts: Facts, *, emptied: bool) -> set[str]:
    """Those that have room for so many of its like; or would have if nobody were there."""
    need, room = asked_of(pod.requests), dict[str, int]()
    for name, node in facts.nodes.items():
        value, row = node.labels.get(key), facts.ledger.rows.get(name)
        if value is not None and row is not None and room.get(value, 0) < size and accepts(node, pod):
            held, own = NOTHING if emptied else row.held, None if emptied else facts.ledger.holding(pod.uid)
            change = own.units if own is not None and own.node == name else None
            room[value] = room.get(value, 0) + copies(row.capacity, held, need, change, size)
    return {value for value, number in room.items() if number >= size}


def _refusal(policy: str, why: str) -> Refuse:
    return Refuse(f"policy {policy} (co-location): {why}", preemption_helps=False, policy=policy)
