"""Feasibility: an upper bound of the pods that policies allow at once if all nodes were empty.

More pods than the bound are impossible on the existing nodes; fewer may be impossible too. Usage and ephemeral
resources do not count, because they change; cordons and taints only in `even_part`. Each policy is satisfied
separately, as well as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.core.cluster import Node, Pod
from extender.core.fit.fit import NOTHING, asked_of, copies
from extender.core.names import in_domain
from extender.core.policies.matched_policy import MatchedPolicy, of_type
from extender.core.policies.policy_types import AntiAffinity, Balance, CoLocation
from extender.kube.node_match import accepts


@dataclass(frozen=True, slots=True)
class Impossible:
    """At most `most` of the policies' `pods` can exist at once, in `place` if all are together.

    `nodes`: all nodes. `match`: those that match the pod's selectors. `placed`: those that are also in a topology
    domain. `large`: those that are also large enough."""

    policies: tuple[str, ...]
    pods: int
    most: int
    place: tuple[tuple[str, str], ...]
    nodes: int
    match: int
    placed: int
    large: int


@dataclass(frozen=True, slots=True)
class _Cap:
    """No label value has more than `most`. Nodes without one: none if `needs_place`, else any."""

    key: str
    most: int
    needs_place: bool


def pods_spoken_of(governed: Sequence[MatchedPolicy]) -> int:
    """How many pods there will be, as the policies state; 1 if none does."""
    sizes = [near.size for _, near in of_type(governed, CoLocation)]
    return max([1, *sizes, *(even.tasks for _, even in of_type(governed, Balance))])


def keeps_apart(each: MatchedPolicy, governed: Sequence[MatchedPolicy]) -> str | None:
    """The label in whose domains the policy allows no two pods with all these matches, or None."""
    if not isinstance(each.parameters, AntiAffinity):
        return None
    named = each.parameters.away_from or (each.name,)
    return each.parameters.topology_key if any(other.name in named for other in governed) else None


def impossible(pod: Pod, nodes: Iterable[Node], domain: str) -> Impossible | None:
    """Why the pods that the policies name can never exist at once; None: they may."""
    together = tuple(dict.fromkeys(near.topology_key for _, near in of_type(pod.governed, CoLocation)))
    apart = [key for each in pod.governed if (key := keeps_apart(each, pod.governed)) is not None]
    even = [each for _, each in of_type(pod.governed, Balance)]
    if not together and not apart and not even:
        return None
    wanted = pods_spoken_of(pod.governed)
    in_places = {*together, *(each.topology_key for each in even)}
    need = [(key, units) for key, units in asked_of(pod.requests) if not in_domain(key, domain)]
    alone = 1 if pod.constraints is not None and pod.constraints.host_ports else wanted
    by_place: dict[tuple[str, ...], list[tuple[Node, int]]] = {}
    there = list(nodes)
    match = placed = large = 0
    for node in there:
        if not accepts(_unrepelling(node), pod):
            continue
        match += 1
        if not in_places <= node.labels.keys():
            continue
        placed += 1
        if (number := copies(node.allocatable, NOTHING, need, most=alone)) > 0:
            large += 1
            by_place.setdefault(tuple(node.labels[key] for key in together), []).append((node, number))
    caps = [_Cap(key, 1, False) for key in apart]
    open_to_it = [node for node in there if accepts(node, pod)] if even else []
    caps += [_Cap(each.topology_key, even_part(each, open_to_it), True) for each in even if each.tasks]
    most, best = 0, tuple[str, ...]()
    for place, found in by_place.items():
        here = min([sum(number for _, number in found), *(_within(cap, found) for cap in caps)])
        if here >= wanted:
            return None
        if here > most:
            most, best = here, place
    if most >= wanted:
        return None
    names = tuple(each.name for each in pod.governed if _has_a_say(each, pod.governed))
    where = tuple(zip(together, best, strict=True)) if best else ()
    return Impossible(names, wanted, most, where, len(there), match, placed, large)


def _has_a_say(each: MatchedPolicy, governed: Sequence[MatchedPolicy]) -> bool:
    return isinstance(each.parameters, CoLocation | Balance) or keeps_apart(each, governed) is not None


def _unrepelling(node: Node) -> Node:
    return replace(node, taints=(), unschedulable=False) if node.taints or node.unschedulable else node


def even_part(even: Balance, nodes: Iterable[Node]) -> int:
    """How many of the policy's pods a topology domain may have, for these eligible nodes."""
    places = {node.labels[even.topology_key] for node in nodes if even.topology_key in node.labels}
    return -(-even.tasks // max(1, len(places)))


def _within(cap: _Cap, found: Sequence[tuple[Node, int]]) -> int:
    """How many pods the cap allows on these nodes, each with room for that number."""
    places: dict[str, int] = {}
    free = 0
    for node, number in found:
        if (value := node.labels.get(cap.key)) is not None:
            places[value] = min(cap.most, places.get(value, 0) + number)
        else:
            free += number
    return sum(places.values()) + (0 if cap.needs_place else free)


def cannot_meet(one: MatchedPolicy, other: MatchedPolicy) -> str | None:
    """The label by which two policies need their common pods both together and apart, or None."""
    both: Mapping[str, MatchedPolicy] = {one.name: one, other.name: other}
    near = {each.topology_key for _, each in of_type((one, other), CoLocation) if each.size != 1}
    apart = {key for each in both.values() if (key := keeps_apart(each, (one, other))) is not None}
    return min(near & apart, default=None)
