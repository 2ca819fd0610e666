"""Rules: whether a batch of pods was placed by its policy's rule, judged from the pods' nodes only.

A checker gets the rule and the facts of the work, such as a pod's group or the nodes with data. Pure.

A `shape` is a placement without what the rule leaves open. Two placements of one shape are equal except for renaming of
equal nodes and of equal pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from lab.compare import policy_check

Placement = Mapping[int, str]
"""Node by number of the pod, in the order in which pods were seen bound; without waiting pods."""


class Verdict(NamedTuple):
    held: bool
    """Whether the rule allows the placement."""
    amount: float
    """What the rule is about, measured."""
    shape: str


def _counts(nodes: Collection[str]) -> str:
    return " ".join(str(count) for count in sorted(Counter(nodes).values()))


def _groups(placement: Placement, group_of: Mapping[int, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod, node in placement.items():
        found.setdefault(group_of[pod], []).append(node)
    return found


def _shape_of_groups(groups: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{group}: {_counts(nodes)}" for group, nodes in sorted(groups.items()))


def apart(placement: Placement, group_of: Mapping[int, str]) -> Verdict:
    """No node has two pods of a group. Measured: the most of one group on a node."""
    groups = _groups(placement, group_of)
    most = max((max(Counter(nodes).values()) for nodes in groups.values()), default=0)
    return Verdict(most <= 1, most, _shape_of_groups(groups))


def together(placement: Placement, group_of: Mapping[int, str]) -> Verdict:
    """Each group is on one node. Measured: the groups that are complete and together."""
    groups, sizes = _groups(placement, group_of), Counter(group_of.values())
    whole = sum(policy_check.is_together(nodes, sizes[group]) for group, nodes in groups.items())
    return Verdict(whole == len(sizes), whole, _shape_of_groups(groups))


def even(placement: Placement, places: Collection[str], most_skew: int) -> Verdict:
    """The fullest domain has at most `most_skew` more than the emptiest. Measured: that skew."""
    skew = policy_check.skew(list(placement.values()), len({*places, *placement.values()}))
    return Verdict(skew <= most_skew and set(placement.values()) <= set(places), skew, _counts(placement.values()))


def at_most(placement: Placement, most: int) -> Verdict:
    """No node has more than `most` pods. Measured: the most on a node."""
    there = max(Counter(placement.values()).values(), default=0)
    return Verdict(there <= most, there, _counts(placement.values()))


def packed(placement: Placement, fewest: int) -> Verdict:
    """No more nodes are used than needed. Measured: the number used."""
    used = len(set(placement.values()))
    return Verdict(used <= fewest, used, _counts(placement.values()))


def near(placement: Placement, wanted: Mapping[int, Collection[str]]) -> Verdict:
    """Each pod is on one of its wanted nodes. Measured: how many are."""
    there = sum(node in wanted[pod] for pod, node in placement.items())
    return Verdict(there == len(wanted), there, f"{there} of {len(placement)}")


def best(placement: Placement, values: Mapping[str, float], most_on_a_node: int) -> Verdict:
    """The best nodes are full, then the next best. Measured: percent of the best sum of values."""
    room = sorted((value for value in values.values() for _ in range(most_on_a_node)), reverse=True)
    could, has = sum(room[: len(placement)]), sum(values[node] for node in placement.values())
    classes = Counter(values[node] for node in placement.values())
    shape = " ".join(f"{value:g}:{count}" for value, count in sorted(classes.items()))
    return Verdict(has == could, 100 * has / could if could else 0.0, shape)


def in_order(bound: Sequence[int], urgent: Collection[int], room: int) -> Verdict:
    """The first `room` bound pods are all urgent. Measured: how many are."""
    first = sum(pod in urgent for pod in bound[:room])
    return Verdict(len(bound) == room == first, first, f"{first} of {len(bound)}")


def limited(placement: Placement, limit: int, waiting: int, others: int) -> Verdict:
    """Exactly `limit` pods run, and all others wait. Measured: how many wait."""
    return Verdict(len(placement) == limit and waiting == others, waiting, str(len(placement)))
