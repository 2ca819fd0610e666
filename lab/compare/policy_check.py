"""Kept: how far a policy other than gangs was kept, judged from what was asked for and where the watcher saw the pods.

Knows the rule of each policy; must not know by which approach the pods were placed, nor how. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from lab.compare.runs import MEMBER, PodRow
from lab.compare.vocabulary import BALANCING, CO_LOCATION, FAIR_SHARE
from lab.compare.workloads import PODS_OF_A_NODE, WEIGHTS, Ask, Shape

MOST_SKEW = 1
"""Pods by which nodes may differ that are to have as many."""
_WITHIN = 1
"""A pod is whole: so many more or fewer than its part a user may have."""


def judged(
    workload: str, shape: Shape, asks: Sequence[Ask], pods: Sequence[PodRow], until: float = inf
) -> float | None:
    """The part of the groups, or of the time, for which the policy was kept; None where the workload has none, or
    where nothing was contended. What comes after `until` is the clearing up, which makes room for who has waited."""
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
    """All of the group are there, on one node."""
    return len(nodes) == size and len(set(nodes)) == 1


def is_even(nodes: Collection[str], size: int, places: int) -> bool:
    """All of the group are there, on nodes of so many that may have them; these differ by one at most."""
    return len(nodes) == size and len(set(nodes)) <= places and skew(nodes, places) <= MOST_SKEW


def skew(nodes: Collection[str], places: int) -> int:
    """How many more the node with most has than that with fewest, of so many."""
    counts = [*Counter(nodes).values()]
    return max(counts, default=0) - (min(counts, default=0) if len(counts) >= places else 0)


def fairly(pods: Mapping[str, Sequence[PodRow]], weights: Mapping[str, int], room: int) -> float | None:
    """Of the time in which all users have pods that wait, the part in which none had more than its part of the room,
    and one pod; 0 if one never came to have its part less one pod. None if they never waited at the same time.

    `pods` by user; `room`: for so many pods.
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
    """For how long each user held so many places, as long as all of them had pods that waited as well."""
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
