"""Policy check: how far a policy other than gangs was kept, from asks and the nodes of pods. Pure.

It judges by the rule of each policy, without the approach that placed the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from lab.compare.runs import MEMBER, PodRow
from lab.compare.trials.workloads import PODS_OF_A_NODE, WEIGHTS, Ask, Shape
from lab.compare.vocabulary import BALANCING, CO_LOCATION, FAIR_SHARE

MOST_SKEW = 1
"""The most pods by which evenly used nodes may differ."""
_WITHIN = 1
"""Pods by which a user may be above or below its part, because pods are whole."""


def judged(
    workload: str, shape: Shape, asks: Sequence[Ask], pods: Sequence[PodRow], until: float = inf
) -> float | None:
    """The share of groups, or of contended time, with the policy kept; None if there is none.

    Events after `until` do not count: the clearing up makes room for pods that waited."""
    members: dict[str, list[PodRow]] = {ask.name: [] for ask in asks}
    for pod in pods:
        if pod.gang in members and pod.role == MEMBER:
            members[pod.gang].append(replace(pod, bound=_by(pod.bound, until), gone=_by(pod.gone, until)))
    if workload == FAIR_SHARE:
        by_user: dict[str, list[PodRow]] = {user: [] for user in WEIGHTS}
        for ask in asks:
            by_user[ask.user] += members[ask.name]
        return fairly(by_user, WEIGHTS, (shape.pool or 0) * PODS_OF_A_NODE)
    if workload not in (CO_LOCATION, BALANCING):
        return None
    nodes = {name: [pod.node for pod in mine if pod.bound is not None] for name, mine in members.items()}
    held = [
        is_together(nodes[ask.name], ask.size)
        if workload == CO_LOCATION
        else is_even(nodes[ask.name], ask.size, shape.pool or 0)
        for ask in asks
    ]
    return sum(held) / max(1, len(held))


def is_together(nodes: Collection[str], size: int) -> bool:
    """Whether all of the group are bound, on one node."""
    return len(nodes) == size and len(set(nodes)) == 1


def is_even(nodes: Collection[str], size: int, places: int) -> bool:
    """Whether all are bound, on at most `places` nodes, which differ by `MOST_SKEW` at most."""
    return len(nodes) == size and len(set(nodes)) <= places and skew(nodes, places) <= MOST_SKEW


def skew(nodes: Collection[str], places: int) -> int:
    """The most pods on a node minus the fewest, over `places` nodes."""
    counts = [*Counter(nodes).values()]
    return max(counts, default=0) - (min(counts, default=0) if len(counts) >= places else 0)


def fairly(pods: Mapping[str, Sequence[PodRow]], weights: Mapping[str, int], room: int) -> float | None:
    """The share of contended time in which no user had more than its part plus one pod.

    Counts time in which all users have waiting pods (None: none); 0 if one never had its part less a pod. `room`: pods.
    """
    whole = sum(weights.values())
    parts = {user: room * weight / whole for user, weight in weights.items()}
    fair = contended = 0.0
    most = dict.fromkeys(parts, 0)
    for seconds, held in _contended(pods):
        contended += seconds
        if all(held[user] <= part + _WITHIN for user, part in parts.items()):
            fair += seconds
        most = {user: max(before, held[user]) for user, before in most.items()}
    if not contended:
        return None
    short = any(most[user] < part - _WITHIN for user, part in parts.items())
    return 0.0 if short else fair / contended


def _contended(pods: Mapping[str, Sequence[PodRow]]) -> Iterator[tuple[float, Mapping[str, int]]]:
    """Spans in which all users had waiting pods: the seconds, and the places each user held."""
    changes: list[tuple[float, str, int, int]] = []
    for user, mine in pods.items():
        for pod in mine:
            if (asked := pod.asked if pod.asked is not None else pod.created) is not None:
                changes.append((asked, user, +1, 0))
                if pod.bound is not None:
                    changes.append((pod.bound, user, -1, +1))
                    if pod.gone is not None:
                        changes.append((pod.gone, user, 0, -1))
                elif pod.gone is not None:
                    changes.append((pod.gone, user, -1, 0))
    waiting, held, last = Counter[str](), Counter[str](), 0.0
    for moment, user, more_wait, more_held in sorted(changes):
        if moment > last and all(waiting[each] > 0 for each in pods):
            yield moment - last, {each: held[each] for each in pods}
        waiting[user] += more_wait
        held[user] += more_held
        last = moment


def _by(moment: float | None, until: float) -> float | None:
    return moment if moment is not None and moment <= until else None
