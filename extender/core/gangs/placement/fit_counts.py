"""Fit counts: how often pods of each kind fit on each node, updated node by node.

A caller defines what a kind is and what is free on a node.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from extender.core.fit.fit import MOST, Asked, Need
from extender.core.ledger.audit import Violation
from extender.core.ledger.node_arrays import Numbers
from extender.core.ledger.units import count_in
from extender.kube.names import NodeName

_SPARE = 64
_K = TypeVar("_K", bound=Hashable)
OnEach = tuple[list[NodeName], Iterable[Numbers]]
"""All nodes, and for each of some kinds how often it fits on each of them."""


@dataclass(slots=True)
class _Counts:
    """Counts of one kind, indexed by node number."""

    by_node: array[int] = field(default_factory=lambda: array("i"))
    total: int = 0
    users: int = 0
    version: int = 0


class Least(Generic[_K]):
    """The least that all kinds need.

    `need`: of one kind; `lacks`: whether a node has too little for it."""

    def __init__(self, need: Callable[[_K], Need], lacks: Callable[[NodeName, Asked], bool]) -> None:
        self._need = need
        self._lacks = lacks
        self._all: Asked = ()

    def add(self, kinds: Collection[_K]) -> None:
        needs = [dict(self._need(kind)) for kind in kinds]
        by_all = set(needs[0]).intersection(*needs[1:]) if needs else ()
        self._all = [(resource, min(need[resource] for need in needs)) for resource in sorted(by_all)]

    def is_lacking(self, node: NodeName) -> bool:
        """Whether no kind fits there; False proves nothing."""
        return self._lacks(node, self._all)


class Copies(Generic[_K]):
    """How often pods of a kind fit on each node, and on all; stored, so that queries cost nothing.

    `nodes`: all nodes as keys; `count`: how often the kind fits on the node now; `count_all`: the same for several
    kinds and all nodes; `least`: spares the counts of all kinds if none fits.

    Memory: 4 bytes for each kind and node. 1,000 kinds on 10,000 nodes take 40 MB.
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
        """Number of kinds that fit on each node; a node where none fits is absent."""
        self._counts: dict[_K, _Counts] = {}
        self._numbers: dict[NodeName, int] = {}
        """Number of each node. A deleted node keeps its number for a while, and has no room."""
        self._most_numbers = _SPARE

    def __contains__(self, kind: _K) -> bool:
        return kind in self._counts

    def follow(self, *kinds: _K) -> None:
        """Counts these kinds from now on. O(nodes) for each new kind."""
        if new := [kind for kind in kinds if kind not in self._counts]:
            self._counts |= {kind: _Counts() for kind in new}
            self._add_least()
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
        """Removes one user of each kind; a kind without users is counted no longer."""
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
            self._add_least()

    def _add_least(self) -> None:
        if self._least is not None:
            self._least.add(self._counts.keys())

    def refresh(self, nodes: Collection[NodeName]) -> int:
        """Recounts these nodes. Returns the number of counts."""
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
        """Renumbers the nodes once deleted ones are more than half of the numbers."""
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
        """Whether one of these nodes has room for any kind."""
        return any(node in self._kinds_on for node in nodes)

    def on(self, node: NodeName, kind: _K) -> int:
        number, by_node = self._numbers.get(node), self._counts[kind].by_node
        return 0 if number is None or number >= len(by_node) else by_node[number]

    def total(self, kind: _K) -> int:
        return self._counts[kind].total

    def version(self, kind: _K) -> int:
        """Changes whenever a count of the kind has changed, while it has users."""
        return self._counts[kind].version

    def with_room(self, kind: _K) -> Iterator[NodeName]:
        """The nodes that have room for one. O(nodes)."""
        by_node = self._counts[kind].by_node
        return (node for node, number in self._numbers.items() if number < len(by_node) and by_node[number])

    def violations(self) -> Iterator[Violation]:
        """Counts that differ from a recount."""
        for kind, counts in self._counts.items():
            by_node = counts.by_node
            known = len(by_node)
            kept = {
                node: count for node, number in self._numbers.items() if number < known and (count := by_node[number])
            }
            anew: Mapping[NodeName, int] = {node: count for node in self._nodes if (count := self._count(node, kind))}
            if anew != kept or sum(anew.values()) != counts.total:
                yield Violation("copies", f"{kind}: {kept}, {counts.total} in total; recounted: {dict(anew)}")
        kinds_on = Counter(node for kind in self._counts for node in self.with_room(kind))
        if kinds_on != self._kinds_on:
            yield Violation("copies", f"kinds by node {self._kinds_on}, recounted: {dict(kinds_on)}")
