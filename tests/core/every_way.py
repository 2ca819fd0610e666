"""Every way to place pods that are alike on a few nodes, by what their policies say: slow, and plain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

from extender.core.cluster import Node, Pod
from extender.core.policies.policy_types import AntiAffinity, Balance, CoLocation
from extender.kube.names import CPU
from extender.kube.node_match import accepts


def holds(places: Sequence[Node], one: Pod, nodes: Sequence[Node]) -> bool:
    """Whether pods like this one, on these nodes, are all where each policy lets them be."""
    on = Counter(each.name for each in places)
    if any(on[each.name] * one.requests.get(CPU, 0) > each.allocatable[CPU] for each in places):
        return False
    if one.constraints is not None and max(on.values()) > 1:
        return False
    for each in one.governed:
        match each.parameters:
            case CoLocation(topology_key=key):
                if len({at.labels.get(key) for at in places}) > 1 or key not in places[0].labels:
                    return False
            case AntiAffinity(away_from=named, topology_key=key):
                values = [at.labels[key] for at in places if key in at.labels]
                if {*(named or [each.name])} & {own.name for own in one.governed} and len(set(values)) < len(values):
                    return False
            case Balance(tasks=tasks, topology_key=key):
                there = {at.labels[key] for at in nodes if key in at.labels and accepts(at, one)}
                counts = Counter(at.labels.get(key) for at in places)
                if None in counts or (tasks and max(counts.values()) > -(-tasks // max(1, len(there)))):
                    return False
    return True


def has_a_way(one: Pod, count: int, nodes: Sequence[Node]) -> bool:
    # Whoever has cordoned or tainted a node may undo it.
    usable = [each for each in nodes if accepts(replace(each, taints=(), unschedulable=False), one)]
    return any(holds(places, one, nodes) for places in combinations_with_replacement(usable, count))
