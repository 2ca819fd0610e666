"""Rules: whether a batch of pods was placed as its policy says, judged from where the pods are and from nothing else.

A checker knows the policy's rule and the facts that the work was given (which group a pod is of, which node has which
data); it must not know who placed the pods, nor how. Pure.

A `shape` is a placement without what the rule leaves open: two placements of one shape are equal up to the renaming of
nodes that are alike, and of pods that are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from lab.compare import policy_check

Placement = Mapping[int, str]
"""By the number of a pod its node, in the order in which the pods were seen bound; who waits is left out."""


class Verdict(NamedTuple):
    held: bool
    """Whether the placement is one that the rule allows."""
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
    """No node has two of a group. Measured: the most of one group on a node."""
    groups = _groups(placement, group_of)
    most = max((max(Counter(nodes).values()) for nodes in groups.values()), default=0)
    return Verdict(most <= 1, most, _shape_of_groups(groups))


def together(placement: Placement, group_of: Mapping[int, str]) -> Verdict:
    """Each group is on one node. Measured: the groups that are all there and together."""
    groups, sizes = _groups(placement, group_of), Counter(group_of.values())
    whole = sum(policy_check.is_together(nodes, sizes[group]) for group, nodes in groups.items())
    return Verdict(whole == len(sizes), whole, _shape_of_groups(groups))


def even(placement: Placement, places: Collection[str], most_skew: int) -> Verdict:
    """The place with most has at most so many more than the place with fewest. Measured: how many more."""
    skew = policy_check.skew(list(placement.values()), len({*places, *placement.values()}))
    return Verdict(skew <= most_skew and set(placement.values()) <= set(places), skew, _counts(placement.values()))


def at_most(placement: Placement, most: int) -> Verdict:
    """No node has more than that. Measured: the most on a node."""
    there = max(Counter(placement.values()).values(), default=0)
    return Verdict(there <= most, there, _counts(placement.values()))


def packed(placement: Placement, fewest: int) -> Verdict:
    """No more nodes are used than are needed. Measured: how many are."""
    used = len(set(placement.values()))
    return Verdict(used <= fewest, used, _counts(placement.values()))


def near(placement: Placement, wanted: Mapping[int, Collection[str]]) -> Verdict:
    """Each pod is on one of the nodes that it wants. Measured: how many are."""
    there = sum(node in wanted[pod] for pod, node in placement.items())
    return Verdict(there == len(wanted), there, f"{there} of {len(placement)}")


def best(placement: Placement, values: Mapping[str, float], most_on_a_node: int) -> Verdict:
    """As many pods as there is room for are on the best nodes, and so on down. Measured: the part, in percent, of the
    sum of values that could be had."""
    room = sorted((value for value in values.values() for _ in range(most_on_a_node)), reverse=True)
    could, has = sum(room[: len(placement)]), sum(values[node] for node in placement.values())
    classes = Counter(values[node] for node in placement.values())
    shape = " ".join(f"{value:g}:{count}" for value, count in sorted(classes.items()))
    return Verdict(has == could, 100 * has / could if could else 0.0, shape)


def in_order(bound: Sequence[int], urgent: Collection[int], room: int) -> Verdict:
    """Of those that were bound first, as many as there was room for, all are urgent. Measured: how many are."""
    first = sum(pod in urgent for pod in bound[:room])
    return Verdict(len(bound) == room == first, first, f"{first} of {len(bound)}")


def limited(placement: Placement, limit: int, waiting: int, others: int) -> Verdict:
    """So many run and no more, and all others wait. Measured: how many wait."""
    return Verdict(len(placement) == limit and waiting == others, waiting, str(len(placement)))
