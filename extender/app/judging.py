"""Judging: whether a pod may be on a node. One rule, asked by the filter verb, by bind, by explain, and by what wakes.

A pod may be on a node if every filter lets it, beside what kube-scheduler itself asks: selectors, taints and cordons
(`node_match`), and room, where what gives way to the pod counts as free. The filter verb asks the filters alone, for
kube-scheduler has asked the rest; who was turned away is woken by the whole rule.

Reads the ledger and changes nothing. Must not know gangs' plans, nor who was turned away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from extender.app.verbs import Verdict
from extender.core.cluster import Node, Pod
from extender.core.ledger import Ledger
from extender.core.names import NodeName
from extender.core.node_match import accepts
from extender.core.units import Short
from extender.filters import Filter
from extender.filters.base import GivingWay, Judge, Rejection
from extender.filters.gang import GangFilter


class Judging:
    """`giving_way`: what is held for others and given up for the pod, by node."""

    def __init__(
        self,
        ledger: Ledger,
        nodes: Mapping[NodeName, Node],
        filters: Sequence[Filter],
        giving_way: Callable[[Pod], GivingWay],
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._filters = filters
        self._giving_way = giving_way

    def judges(self, pod: Pod) -> list[tuple[Filter, Judge]]:
        """The filters that have a say about the pod, and how each judges nodes for it."""
        giving_way = self._giving_way(pod)
        asked = ((policy, policy.judge(pod, self._ledger, giving_way)) for policy in self._filters)
        return [(policy, judge) for policy, judge in asked if judge is not None]

    def judges_of_nodes(self, pod: Pod) -> list[tuple[Filter, Judge]]:
        """As `judges`, without the one that says where a gang's plan has its member: plans follow room, and the room
        is what is asked about."""
        return [(policy, judge) for policy, judge in self.judges(pod) if not isinstance(policy, GangFilter)]

    def verdict(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """What the filters say of the nodes that kube-scheduler sent."""
        judges = [judge for _, judge in self.judges(pod)]
        if not judges:
            return Verdict(sent)
        passed: list[NodeName] = []
        rejected: dict[NodeName, str] = {}
        unresolvable: dict[NodeName, str] = {}
        for node in sent:
            rejection = _first_rejection(judges, node)
            if rejection is None:
                passed.append(node)
            else:
                (rejected if rejection.preemption_helps else unresolvable)[node] = rejection.reason
        return Verdict(passed, rejected, unresolvable)

    def rejection(self, pod: Pod, node: NodeName) -> Rejection | None:
        """Why the filters do not let the pod be there."""
        return _first_rejection([judge for _, judge in self.judges(pod)], node)

    def room(self, pod: Pod) -> Callable[[NodeName], Short | None]:
        """What is short on a node for the pod, though all gave way that would."""
        giving_way = self._giving_way(pod)
        return lambda node: self._ledger.short(node, pod.requests, (pod.uid, *giving_way.get(node, ())))

    def passes(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether the pod, if it were tried now, could go to a node."""
        judges = [judge for _, judge in self.judges_of_nodes(pod)]
        room = self.room(pod)

        def could_go(name: NodeName) -> bool:
            node = self._nodes.get(name)
            if node is None or not accepts(node, pod) or room(name) is not None:
                return False
            return _first_rejection(judges, name) is None

        return could_go


def _first_rejection(judges: Iterable[Judge], node: NodeName) -> Rejection | None:
    for judge in judges:
        if (rejection := judge(node)) is not None:
            return rejection
    return None
