"""How often pods of a kind fit on each node, and on all together: kept, so that asking costs nothing.

What "fit" means is asked of the owner, one kind and one node at a time (`free`: in what nobody holds; `ever`: in what
could come free). The owner also says which nodes have changed. Must not know the ledger, nor what waits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from extender.core.audit import Violation
from extender.core.names import NodeName, ResourceKey
from extender.core.units import Vector

Need = frozenset[tuple[ResourceKey, int]]
"""Requests without what is 0."""
_LARGEST = 10_000
"""Where nothing is asked for, everything fits: so often, it is said."""
_MOST = 2**31 - 1
_SPARE = 64
K = TypeVar("K", bound=Hashable)


def need_of(requests: Vector) -> Need:
    return frozenset((resource, units) for resource, units in requests.items() if units > 0)


def copies_in(units: Vector, need: Need) -> int:
    """How often the need fits into so many units."""
    return max(0, min((units.get(resource, 0) // asked for resource, asked in need), default=_LARGEST))


def copies_beside(capacity: Vector, held: Vector, need: Need) -> int:
    """How often the need fits into what the capacity leaves beside what is held."""
    most = _LARGEST if not need else _MOST
    for resource, asked in need:
        most = min(most, (capacity.get(resource, 0) - held.get(resource, 0)) // asked)
        if most <= 0:
            return 0
    return most


class _Counts:
    """Of one kind, by the number that each node has."""

    __slots__ = ("by_node", "total", "users", "version")

    def __init__(self) -> None:
        self.by_node = array("i")
        self.total = 0
        self.users = 0
        self.version = 0


class Copies(Generic[K]):
    """`nodes`: the keys are those there are; `count`: how often the kind fits on the node as it is now.

    A row of four bytes a node for each kind: a thousand kinds on ten thousand nodes are 40 MB.
    """

    def __init__(self, nodes: Mapping[NodeName, object], count: Callable[[NodeName, K], int]) -> None:
        self._nodes = nodes
        self._count = count
        self._counts: dict[K, _Counts] = {}
        self._numbers: dict[NodeName, int] = {}
        """Of the nodes; one that is gone keeps its number for a while, and has no room."""
        self._most_numbers = _SPARE

    def __contains__(self, kind: K) -> bool:
        return kind in self._counts

    def follow(self, kind: K) -> None:
        """It will be asked about. O(nodes) for the first who follows it."""
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = _Counts()
            for node in self._nodes:
                self._recount(node, kind, counts)
        counts.users += 1

    def leave(self, kind: K) -> None:
        """One who followed it does no more."""
        counts = self._counts[kind]
        counts.users -= 1
        if not counts.users:
            del self._counts[kind]

    def refresh(self, nodes: Collection[NodeName]) -> int:
        """What is answered about these nodes from now on is of this moment. How many counts that took."""
        for node in nodes:
            for kind, counts in self._counts.items():
                self._recount(node, kind, counts)
        if len(self._numbers) > self._most_numbers:
            self._number_anew()
        return len(nodes) * len(self._counts)

    def _number_anew(self) -> None:
        """Nodes that are gone have no number, once they are more than those that are there."""
        there = list(self._nodes)
        self._most_numbers = 2 * len(there) + _SPARE
        if len(self._numbers) <= self._most_numbers:
            return
        before = [self._numbers.get(node, -1) for node in there]
        self._numbers = {node: number for number, node in enumerate(there)}
        for counts in self._counts.values():
            kept = counts.by_node
            counts.by_node = array("i", [kept[number] if 0 <= number < len(kept) else 0 for number in before])

    def _recount(self, node: NodeName, kind: K, counts: _Counts) -> None:
        number = self._numbers.setdefault(node, len(self._numbers))
        by_node = counts.by_node
        if number >= len(by_node):
            by_node.frombytes(bytes(by_node.itemsize * (len(self._numbers) - len(by_node))))
        count, before = min(self._count(node, kind), _MOST), by_node[number]
        if count != before:
            by_node[number] = count
            counts.total += count - before
            counts.version += 1

    def on(self, node: NodeName, kind: K) -> int:
        number, by_node = self._numbers.get(node), self._counts[kind].by_node
        return 0 if number is None or number >= len(by_node) else by_node[number]

    def total(self, kind: K) -> int:
        return self._counts[kind].total

    def version(self, kind: K) -> int:
        """Another whenever a count of the kind has changed, as long as somebody follows it."""
        return self._counts[kind].version

    def with_room(self, kind: K) -> Iterator[NodeName]:
        """The nodes that have room for one. O(nodes)."""
        by_node = self._counts[kind].by_node
        return (node for node, number in self._numbers.items() if number < len(by_node) and by_node[number])

    def violations(self) -> Iterator[Violation]:
        """Counts that are not what they would be, counted anew."""
        for kind, counts in self._counts.items():
            by_node = counts.by_node
            known = len(by_node)
            kept = {
                node: count for node, number in self._numbers.items() if number < known and (count := by_node[number])
            }
            anew: Mapping[NodeName, int] = {node: count for node in self._nodes if (count := self._count(node, kind))}
            if anew != kept or sum(anew.values()) != counts.total:
                yield Violation("copies", f"{kind}: {kept}, {counts.total} in all; counted anew: {dict(anew)}")
