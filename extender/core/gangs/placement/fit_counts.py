"""Copies: how often pods of each kind fit on each node, kept, so that a change of one node is counted for it alone.

Must not know what a kind is, nor what is free on a node.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from extender.core.audit import Violation
from extender.core.fit import MOST, Asked, Need
from extender.core.node_arrays import Numbers
from extender.core.units import count_in
from extender.kube.names import NodeName

_SPARE = 64
_K = TypeVar("_K", bound=Hashable)
OnEach = tuple[list[NodeName], Iterable[Numbers]]
"""The nodes that there are, and for each of some kinds how often it fits on each of them."""


@dataclass(slots=True)
class _Counts:
    """Of one kind, by the number that each node has."""

    by_node: array[int] = field(default_factory=lambda: array("i"))
    total: int = 0
    users: int = 0
    version: int = 0


class Least(Generic[_K]):
    """What each of several kinds needs, at least. `need`: of one kind; `lacks`: whether a node has too little for some
    need."""

    def __init__(self, need: Callable[[_K], Need], lacks: Callable[[NodeName, Asked], bool]) -> None:
        self._need = need
        self._lacks = lacks
        self._all: Asked = ()

    def learn(self, kinds: Collection[_K]) -> None:
        """These are the kinds."""
        needs = [dict(self._need(kind)) for kind in kinds]
        by_all = set(needs[0]).intersection(*needs[1:]) if needs else ()
        self._all = [(resource, min(need[resource] for need in needs)) for resource in sorted(by_all)]

    def is_lacking(self, node: NodeName) -> bool:
        """Whether none of the kinds fits there; False says nothing."""
        return self._lacks(node, self._all)


class Copies(Generic[_K]):
    """How often pods of a kind fit on each node, and on all together: kept, so that asking costs nothing.

    `nodes`: the keys are those there are; `count`: how often the kind fits on the node as it is now; `count_all`: the
    same at once for several kinds and all nodes; `least`: spares counting kind by kind where none fits.

    A row of four bytes a node for each kind: a thousand kinds on ten thousand nodes are 40 MB.
    """

    def __init__(
        self,
        nodes: Mapping[NodeName, object],
        count: Callable[[NodeName, _K], int],
        least: Least[_K] | None = None,
        count_all: Callable[[Sequence[_K]], OnEach] | None = None,
    ) -> None:
        self._nodes = nodes
        self._count = count
        self._count_all = count_all
        self._least = least
        self._kinds_on: dict[NodeName, int] = {}
        """How many kinds have room for one there; nodes on which none has are absent."""
        self._counts: dict[_K, _Counts] = {}
        self._numbers: dict[NodeName, int] = {}
        """Of the nodes; one that is gone keeps its number for a while, and has no room."""
        self._most_numbers = _SPARE

    def __contains__(self, kind: _K) -> bool:
        return kind in self._counts

    def follow(self, *kinds: _K) -> None:
        """They will be asked about. O(nodes) for each that nobody has followed."""
        if new := [kind for kind in kinds if kind not in self._counts]:
            self._counts |= {kind: _Counts() for kind in new}
            self._learn_least()
            self._count_new(new)
        for kind in kinds:
            self._counts[kind].users += 1

    def _count_new(self, kinds: Sequence[_K]) -> None:
        if self._count_all is None:
            for kind in kinds:
                for node in self._nodes:
                    self._set(node, self._counts[kind], self._count(node, kind))
            return
        names, found = self._count_all(kinds)
        numbers = np.arange(len(names))
        if list(self._numbers) != names:
            numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)
        kinds_on = np.zeros(len(names), np.int64)
        for kind, on_each in zip(kinds, found, strict=True):
            counts, by_node = self._counts[kind], np.zeros(len(self._numbers), np.intc)
            by_node[numbers] = np.minimum(on_each, MOST)
            counts.by_node = array("i", by_node.tobytes())
            counts.total, counts.version = int(by_node.sum(dtype=np.int64)), counts.version + 1
            kinds_on += on_each > 0
        self._count_kinds(names, kinds_on, +1)

    def _count_kinds(self, names: Sequence[NodeName], kinds_on: Numbers, sign: int) -> None:
        for number in np.flatnonzero(kinds_on).tolist():
            count_in(self._kinds_on, names[number], sign * int(kinds_on[number]))

    def leave(self, *kinds: _K) -> None:
        """Of those who followed each of them, one does no more."""
        gone = list[_Counts]()
        for kind in kinds:
            counts = self._counts[kind]
            counts.users -= 1
            if not counts.users:
                gone.append(self._counts.pop(kind))
        if gone:
            kinds_on = np.zeros(len(self._numbers), np.int64)
            for counts in gone:
                kinds_on[: len(counts.by_node)] += np.frombuffer(counts.by_node, np.intc) > 0
            self._count_kinds(list(self._numbers), kinds_on, -1)
            self._learn_least()

    def _learn_least(self) -> None:
        if self._least is not None:
            self._least.learn(self._counts.keys())

    def refresh(self, nodes: Collection[NodeName]) -> int:
        """What is answered about these nodes from now on is of this moment. How many counts that took."""
        counted = 0
        for node in nodes:
            if self._least is not None and node not in self._kinds_on and self._least.is_lacking(node):
                counted += 1
                continue
            counted += len(self._counts)
            for kind, counts in self._counts.items():
                self._set(node, counts, self._count(node, kind))
        if len(self._numbers) > self._most_numbers:
            self._number_anew()
        return counted

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

    def _set(self, node: NodeName, counts: _Counts, count: int) -> None:
        number = self._numbers.setdefault(node, len(self._numbers))
        by_node = counts.by_node
        if number >= len(by_node):
            by_node.frombytes(bytes(by_node.itemsize * (len(self._numbers) - len(by_node))))
        count, before = min(count, MOST), by_node[number]
        if count != before:
            by_node[number] = count
            counts.total += count - before
            counts.version += 1
            if not (count and before):
                count_in(self._kinds_on, node, 1 if count else -1)

    def anywhere(self, nodes: Iterable[NodeName]) -> bool:
        """Whether one of these nodes has room for one of any kind."""
        return any(node in self._kinds_on for node in nodes)

    def on(self, node: NodeName, kind: _K) -> int:
        number, by_node = self._numbers.get(node), self._counts[kind].by_node
        return 0 if number is None or number >= len(by_node) else by_node[number]

    def total(self, kind: _K) -> int:
        return self._counts[kind].total

    def version(self, kind: _K) -> int:
        """Another whenever a count of the kind has changed, as long as somebody follows it."""
        return self._counts[kind].version

    def with_room(self, kind: _K) -> Iterator[NodeName]:
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
        kinds_on = Counter(node for kind in self._counts for node in self.with_room(kind))
        if kinds_on != self._kinds_on:
            yield Violation("copies", f"kinds by node {self._kinds_on}, counted anew: {dict(kinds_on)}")
