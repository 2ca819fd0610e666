"""Equivalence classes of pods: pods of one class fit equally often on the same nodes.

This covers room, selectors and taints.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.fit.fit import Need, need_of
from extender.kube.node_match import SelectorTerm, Toleration


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
