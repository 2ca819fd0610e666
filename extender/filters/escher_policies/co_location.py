"""Co-location: all pods of the policy are in the topology domain of the first.

With a size, that domain has room for all; without, the first pod prefers the emptiest node."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from extender.core.affinity.by_place import ByPlace, Numbers
from extender.core.cluster import Node, Pod
from extender.core.fit.equivalence import equivalence_of
from extender.core.fit.fit import NOTHING, asked_of, copies
from extender.core.gang_ask import GangAsk
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import CoLocation
from extender.core.policy import Concerns, Facts, NodeFilter, Refuse, Scorer
from extender.filters.escher_policies.bin_packing import fullness
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import NodeName
from extender.kube.node_match import accepts


class PolicyCoLocation:
    name = "policy-co-location"
    concerns = Concerns.GOVERNED

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        places, found, large = self._standing.places(facts), None, dict[str, Numbers]()
        near = list(of_type(pod.governed, CoLocation))
        in_gang = isinstance(pod.gang, GangAsk)
        # A gang is planned where its quorum has room; room for all is judged as if other pods left.
        room = _Room(pod, facts, max((each.size for _, each in near), default=0), emptied=in_gang)
        for policy, each in near:
            there = np.flatnonzero(self._standing.column(policy.name, pod, facts))
            # A pod whose node is gone for a while counts, too, in no known topology domain.
            stands = len(there) > 0 or bool(self._standing.of(policy.name, pod, facts))
            key, label = each.topology_key, places.by(each.topology_key)
            closed = label.flags(elsewhere=True)
            if not stands and each.size > 1:
                if key not in large:
                    roomy = room.by(key)
                    large[key] = np.array([roomy.get(value, 0) for value in label.values], np.int64)
                closed[:-1] = large[key] < each.size
                why = "no topology domain has room for all of its pods"
            elif in_gang:
                # Planned with the whole gang; the domain of another waiting gang does not count.
                continue
            elif stands:
                closed[:-1] = True
                closed[label.of_node[there]] = False
                closed[-1] = True
                why = "its other pods are in another topology domain"
            else:
                why = "the node is in no topology domain"
            found = found or ByPlace(places)
            found.refuse(key, closed, _refusal(policy.name, why))
        return found

    def alike(self, pod: Pod) -> Hashable:
        near = list(of_type(pod.governed, CoLocation))
        if not near:
            return None
        in_gang = isinstance(pod.gang, GangAsk)
        like = equivalence_of(pod) if any(each.size > 1 for _, each in near) else None
        return pod.namespace, pod.governed, in_gang, like

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        """The first pod without a given size prefers the emptiest node, which has most room."""
        near = of_type(pod.governed, CoLocation)
        if not any(each.size < 2 and not self._standing.of(policy.name, pod, facts) for policy, each in near):
            return None
        return lambda node: 1.0 - fullness(node, facts)


class _Room:
    """Per node: how many pods like this one fit, or would on empty nodes (`emptied`)."""

    def __init__(self, pod: Pod, facts: Facts, most: int, *, emptied: bool) -> None:
        self._pod, self._facts, self._most, self._emptied = pod, facts, most, emptied
        self._need = asked_of(pod.requests)
        self._own = None if emptied else facts.ledger.holding(pod.uid)
        self._on_node: dict[NodeName, int] = {}

    def by(self, key: str) -> dict[str, int]:
        """By value of that label; not counted beyond `most`."""
        found: dict[str, int] = {}
        for name, node in self._facts.nodes.items():
            if key in node.labels:
                value = node.labels[key]
                before = found.get(value, 0)
                if before < self._most:
                    found[value] = before + (self._on_node[name] if name in self._on_node else self._on(name, node))
        return found

    def _on(self, name: NodeName, node: Node) -> int:
        row, number = self._facts.ledger.rows.get(name), 0
        if row is not None and accepts(node, self._pod):
            change = self._own.units if self._own is not None and self._own.node == name else None
            number = copies(row.capacity, NOTHING if self._emptied else row.held, self._need, change, self._most)
        self._on_node[name] = number
        return number


def _refusal(policy: str, why: str) -> Refuse:
    return Refuse(f"policy {policy} (co-location): {why}", preemption_helps=False, policy=policy)
