"""Equivalence classes of pods: pods of one class fit equally often on the same nodes.

This covers room, selectors and taints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.fit.fit import Need, need_of
from extender.kube.node_match import SelectorTerm, Toleration

MOST_KINDS, _THINGS_OF_A_KIND = 512, 16
"""Most kinds of one gang's members in a plan. A kind with this many terms, keys and values counts as one more."""
TOO_VARIED = (
    f"its members are of more than {MOST_KINDS} kinds ({_THINGS_OF_A_KIND} terms, keys and values of node selectors, "
    "node affinity and tolerations count as one more): give them the same requests and constraints"
)


@dataclass(frozen=True, slots=True)
class EquivalenceClass:
    """Equal for pods that are alike; `like` is one of them."""

    need: Need
    selector: frozenset[tuple[str, str]]
    affinity: tuple[SelectorTerm, ...]
    tolerations: tuple[Toleration, ...]
    like: Pod = field(compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)
    """Cached, because look-ups are far more frequent than creations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.need, self.selector, self.affinity, self.tolerations)))

    def __hash__(self) -> int:
        return self._hash


def equivalence_of(pod: Pod) -> EquivalenceClass:
    return EquivalenceClass(need_of(pod.requests), *matching_of(pod), pod)


def matching_of(pod: Pod) -> tuple[frozenset[tuple[str, str]], tuple[SelectorTerm, ...], tuple[Toleration, ...]]:
    """Equal for pods that the same nodes accept, regardless of room."""
    return frozenset(pod.node_selector.items()), pod.affinity, pod.tolerations


def are_alike(one: Pod, other: Pod) -> bool:
    """Whether both are of one class; cheaper than making it."""
    return one is other or (
        one.requests == other.requests
        and one.node_selector == other.node_selector
        and one.affinity == other.affinity
        and one.tolerations == other.tolerations
    )


def are_too_varied(pods: Iterable[Pod]) -> bool:
    """Whether these pods are of more kinds than one step may plan."""
    kinds, weight, last = set[EquivalenceClass](), 0, None
    for pod in pods:
        if last is None or not are_alike(pod, last):
            kind, last = equivalence_of(pod), pod
            if kind not in kinds:
                kinds.add(kind)
                weight += 1 + _things_of(pod) // _THINGS_OF_A_KIND
                if weight > MOST_KINDS:
                    return True
    return False


def _things_of(pod: Pod) -> int:
    requirements = [each for term in pod.affinity for each in (*term.labels, *term.fields)]
    values = sum(1 + len(each.values) for each in requirements)
    return len(pod.node_selector) + len(pod.tolerations) + len(pod.affinity) + values
