"""Kinds of pods: those of one kind fit on the same nodes, as often, as far as room, selectors and taints have a say.

Must not know nodes nor gangs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.cluster import Pod, SelectorTerm, Toleration
from extender.core.copies import Need, need_of


@dataclass(frozen=True, slots=True)
class PodKind:
    """Equal for pods that are alike; `like` is one of them."""

    need: Need
    selector: frozenset[tuple[str, str]]
    affinity: tuple[SelectorTerm, ...]
    tolerations: tuple[Toleration, ...]
    like: Pod = field(compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)
    """It is looked up far more often than made."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.need, self.selector, self.affinity, self.tolerations)))

    def __hash__(self) -> int:
        return self._hash


def kind_of(pod: Pod) -> PodKind:
    return PodKind(need_of(pod.requests), frozenset(pod.node_selector.items()), pod.affinity, pod.tolerations, pod)
