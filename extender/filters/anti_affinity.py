"""Filter: no node has two pods of the same anti-affinity group.

    metadata: {annotations: {escher.dev/anti-affinity-group: web}}

A group belongs to one namespace. As with kube-scheduler's inter-pod anti-affinity, the pods need not be alike. Here
they need no labels and no selector, and a pod that is about to be bound counts already.
"""

from __future__ import annotations

from extender.core.cluster import Node, Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.names import DOMAIN
from extender.core.policy import Facts, NodeFilter, OnlyOn, Refuse
from extender.filters.asks import malformed, malformed_name
from extender.filters.grouped import Grouped

GROUP = f"{DOMAIN}/anti-affinity-group"
REASON = "the node has a pod of the same anti-affinity group"


class AntiAffinity:
    name = "anti-affinity"
    judges_binds = True

    def __init__(self) -> None:
        self._groups = Grouped(_group)

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        if GROUP in pod.annotations and pod.gang is not None:
            expected = "allowed on members of a gang, which Escher plans by their podAntiAffinity"
            return malformed(GROUP, pod.annotations[GROUP], expected, "web, on pods of no gang")
        return malformed_name(pod, GROUP, "web")

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Pod):
            self._groups.put(fact)

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Pod):
            self._groups.drop(fact)

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        if (group := _group(pod)) is None:
            return None
        others = (other for uid, other in self._groups.members(group).items() if uid != pod.uid)
        taken = {node for other in others if (node := facts.node_of(other)) is not None}
        refusal = Refuse(REASON)
        return OnlyOn(taken, lambda node: refusal)


def _group(pod: Pod) -> tuple[str, str] | None:
    return (pod.namespace, pod.annotations[GROUP]) if GROUP in pod.annotations else None
