"""Room: how much CPU each member of the demo's jobs requests, and how many members each node takes.

Computed from what the nodes offer, so that the same story can be told on any nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_MOST_PLACES = 64
_FEWEST_PLACES = 8
_MOST_FREE, _MOST_LOOKS = 200, 200_000
"""Places; and places times nodes, because kube-scheduler checks all nodes for each place."""
_PARTS = (2, 16)


@dataclass(frozen=True)
class FreeRoom:
    """Nodes as places for members of one size."""

    milli: int
    """Thousandths of a CPU that a member requests."""
    places: Mapping[str, int]
    """How many members each node takes, in the order of nodes, without nodes that take none."""
    nodes: int
    """The number of all nodes, also of those without a place."""
    busy: frozenset[str] = frozenset()
    """Nodes to be filled with other work; without them the jobs would be too large."""

    @property
    def free(self) -> list[str]:
        """The nodes that the jobs can use."""
        return [node for node in self.places if node not in self.busy]

    @property
    def total(self) -> int:
        """How many members fit at once."""
        return sum(self.places[node] for node in self.free)

    @property
    def cpu(self) -> str:
        """A member's request, as a Kubernetes quantity."""
        return str(self.milli // 1000) if self.milli % 1000 == 0 else f"{self.milli}m"


def room(offers: Mapping[str, int]) -> FreeRoom:
    """Chooses the members' size. `offers`: thousandths of a CPU by node, of one node at least.

    Members are as small as possible while at most some dozens fit. If there are more nodes than that, a member takes
    one of the largest nodes whole. If these are more than some hundreds, the rest are busy.
    """
    found = _fitting(offers)
    most = max(_MOST_PLACES, min(_MOST_FREE, _MOST_LOOKS // len(offers)))
    number, busy = 0, set()
    for node, places in found.places.items():
        number += places
        if number > most:
            busy.add(node)
    return replace(found, busy=frozenset(busy))


def _fitting(offers: Mapping[str, int]) -> FreeRoom:
    best = _room(offers, max(offers.values()))
    for parts in _PARTS:
        asks = sorted({offered // part for offered in offers.values() for part in range(1, parts + 1)} - {0})
        found = next((each for ask in asks if (each := _room(offers, ask)).total <= _MOST_PLACES), best)
        if found.total >= _FEWEST_PLACES:
            return found
        best = max(best, found, key=lambda each: each.total)
    return best


def spread(offers: Mapping[str, int]) -> str:
    """The nodes in words: `16 nodes of 8 CPUs`."""
    least, most = (_cores(each) for each in (min(offers.values()), max(offers.values())))
    return f"{len(offers):,} nodes of {least if least == most else f'{least} to {most}'} CPUs"


def _room(offers: Mapping[str, int], ask: int) -> FreeRoom:
    return FreeRoom(ask, {node: fits for node, offered in offers.items() if (fits := offered // ask)}, len(offers))


def _cores(milli: int) -> str:
    return f"{milli / 1000:g}"
