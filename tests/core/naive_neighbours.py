"""kube-scheduler's rules about the pods around, written the slow way: one pod at a time, everything counted anew.

Shares nothing with core/neighbours but the values that both read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product

from extender.core.affinity.constraints import NO_CONSTRAINTS, AffinityTerm, Spread
from extender.core.cluster import Node, Pod
from extender.kube.names import NodeName
from extender.kube.node_match import accepts

Placed = Sequence[tuple[Pod, Node]]


def lets(pod: Pod, node: Node, there: Placed, nodes: Sequence[Node]) -> bool:
    """Whether kube-scheduler would let the pod on the node."""
    here = [other for other, at in there if at.name == node.name]
    if any(resource_short(resource, [pod, *here], node) for resource in pod.requests):
        return False
    return accepts(node, pod) and lets_beside(pod, node, there, nodes)


def lets_beside(pod: Pod, node: Node, there: Placed, nodes: Sequence[Node]) -> bool:
    """Whether it would for the sake of those that are there, whatever room the node has."""
    own = pod.constraints or NO_CONSTRAINTS
    here = [other for other, at in there if at.name == node.name]
    ports = [port for other in here for port in (other.constraints or NO_CONSTRAINTS).host_ports]
    if any(port.clashes(used) for port in own.host_ports for used in ports):
        return False
    for other, at in there:
        if any(meant(term, other) and same(term, node, at) for term in own.anti_affinity):
            return False
        terms = (other.constraints or NO_CONSTRAINTS).anti_affinity
        if any(meant(term, pod) and same(term, node, at) for term in terms):
            return False
    return near_enough(pod, node, there) and even_enough(pod, node, there, nodes)


def resource_short(resource: str, pods: Sequence[Pod], node: Node) -> bool:
    asked = sum(units for pod in pods for name, units in pod.requests.items() if name == resource)
    return asked > next((units for name, units in node.allocatable.items() if name == resource), 0)


def meant(term: AffinityTerm, pod: Pod) -> bool:
    return term.peers.include(pod.namespace, pod.labels)


def same(term: AffinityTerm, node: Node, other: Node) -> bool:
    key = term.topology_key
    return key in node.labels and key in other.labels and node.labels[key] == other.labels[key]


def near_enough(pod: Pod, node: Node, there: Placed) -> bool:
    terms = (pod.constraints or NO_CONSTRAINTS).affinity
    if not all(term.topology_key in node.labels for term in terms):
        return False
    liked = [at for other, at in there if all(meant(term, other) for term in terms)]
    if all(any(same(term, node, at) for at in liked) for term in terms):
        return True
    lonely = not any(term.topology_key in at.labels for term in terms for at in liked)
    return lonely and all(meant(term, pod) for term in terms)


def even_enough(pod: Pod, node: Node, there: Placed, nodes: Sequence[Node]) -> bool:
    spreads = (pod.constraints or NO_CONSTRAINTS).spread
    for spread in spreads:
        if not all(each.topology_key in node.labels for each in spreads):
            return False
        counting = [each for each in nodes if all(other.topology_key in each.labels for other in spreads)]
        counting = [each for each in counting if counts_for(spread, each, pod)]
        key = spread.topology_key
        counts = {each.labels[key]: 0 for each in counting}
        for other, at in there:
            counted = spread.peers.include(other.namespace, other.labels) and not other.deleting
            if counted and any(at.name == each.name for each in counting):
                counts[at.labels[key]] += 1
        least = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
        itself = spread.peers.include(pod.namespace, pod.labels)
        if counts.get(node.labels[key], 0) + itself - least > spread.max_skew:
            return False
    return True


def counts_for(spread: Spread, node: Node, pod: Pod) -> bool:
    """Whether the node is one of those among which there are to be equally many."""
    untainted, undemanding = replace(node, taints=(), unschedulable=False), replace(pod, node_selector={}, affinity=())
    return accepts(node if spread.respects_taints else untainted, pod if spread.respects_affinity else undemanding)


def holds(order: Sequence[tuple[Pod, NodeName]], there: Placed, nodes: Mapping[NodeName, Node]) -> bool:
    """Whether kube-scheduler would let each of these go where the plan has it, one after the other."""
    standing = list(there)
    for pod, name in order:
        if not lets(pod, nodes[name], standing, list(nodes.values())):
            return False
        standing.append((pod, nodes[name]))
    return True


def possible(pods: Sequence[Pod], there: Placed, nodes: Mapping[NodeName, Node]) -> bool:
    """Whether there is any plan at all, in any order."""
    return any(
        holds(tuple(zip(order, names, strict=True)), there, nodes)
        for order in permutations(pods)
        for names in product(nodes, repeat=len(pods))
    )
