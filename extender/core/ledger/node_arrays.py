"""Arrays of the free units of all nodes, by resource, for questions that would examine every node.

The rule is that of `fit`, applied to arrays. Tests compare the answers with `fit` node by node. An array is filled at
the first question; later only nodes that changed are updated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from extender.core.common.bounded import Bounded
from extender.core.fit.fit import Asked
from extender.core.fit.node_matching import AcceptsPod
from extender.core.ledger.node_rows import NOWHERE, Changes, NodeRows
from extender.core.ledger.units import Short
from extender.kube.names import NodeName, ResourceKey
from extender.kube.node_match import PodRules
from extender.kube.quantities import Vector

Numbers = npt.NDArray[np.int64]
Accepts = Callable[[NodeName], bool]
"""Whether the node accepts the pod, regardless of room."""
_MOST = 2**63 - 1
"""The largest number in an array; no node reports more."""
_MOST_COPIES = 2**40
_FEW, _FEWER = 128, 16
"""Nodes asked one by one, no slower than all at once; `_FEWER` with rules or many keys."""
_FEW_KEYS = 8
_MOST_COLUMNS = 64
"""Most arrays kept: tenants name the resources, and each change of a node updates all arrays."""


class Accepting:
    """Which of these nodes each kind of pod may use. It asks once about each node."""

    def __init__(self, names: Sequence[NodeName]) -> None:
        self._names = names
        self._known: dict[Hashable, npt.NDArray[np.int8]] = {}
        """By key: 1 for an accepted node, -1 for a refused one, 0 for one not yet asked about."""
        self._rules: Callable[[PodRules], npt.NDArray[np.bool_]] | None = None
        """Finds the nodes that accept a pod by its rules; set once many nodes were asked about."""

    def __call__(self, key: Hashable, accepts: Accepts, at: Numbers) -> Numbers:
        """Accepted nodes among `at`, by number. `key`: equal for `accepts` with equal answers."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = np.zeros(len(self._names), np.int8)
        unknown = at[known[at] == 0]
        most = _FEW if self._rules is None and len(self._known) <= _FEW_KEYS else _FEWER
        if len(unknown) > most and isinstance(accepts, AcceptsPod):
            let = self.by_rules(accepts)
            known[~let] = -1
            if accepts.judged is None:
                known[let] = 1
                return at[let[at]]
            unknown, accepts = unknown[let[unknown]], accepts.judged
        for number in unknown.tolist():
            known[number] = 1 if accepts(self._names[number]) else -1
        return at[known[at] > 0]

    def by_rules(self, accepts: AcceptsPod) -> npt.NDArray[np.bool_]:
        """Which nodes accept the pod by labels and taints, without `judged`."""
        if self._rules is None:
            self._rules = accepts.matching.over(self._names)
        return self._rules(accepts.pod)


class Grid:
    """Free units of some nodes, as arrays, for a plan with many questions about all of them.

    `read` returns each node's free units of a resource, in order. It is called once; `add` reports later changes."""

    def __init__(self, names: Sequence[NodeName], read: Callable[[ResourceKey], Iterable[int]]) -> None:
        self.names = names
        self.numbers = {name: number for number, name in enumerate(names)}
        self._by_number = np.array(names, object)
        self._read = read
        self._free: dict[ResourceKey, Numbers] = {}
        self.accepting = Accepting(names)
        self.untouched = np.ones(len(names), np.bool_)
        """Nodes on which nothing is planned yet, as far as the caller has reported."""

    def copy(self, read: Callable[[ResourceKey], Iterable[int]]) -> Grid:
        """A copy; its `read` supplies the resources that this one has not read yet."""
        twin = object.__new__(Grid)
        twin.names, twin.numbers, twin._by_number = self.names, self.numbers, self._by_number
        twin._read, twin.accepting = read, self.accepting
        twin.untouched = self.untouched.copy()
        twin._free = {resource: column.copy() for resource, column in self._free.items()}
        return twin

    def add(self, name: NodeName, resource: ResourceKey, units: int) -> None:
        """The node has `units` more free of the resource."""
        if (column := self._free.get(resource)) is not None and (number := self.numbers.get(name)) is not None:
            column[number] = _clipped(int(column[number]) + units)

    def _column(self, resource: ResourceKey) -> Numbers:
        column = self._free.get(resource)
        if column is None:
            try:
                column = np.fromiter(self._read(resource), np.int64, len(self.names))
            except OverflowError:
                column = np.fromiter(map(_clipped, self._read(resource)), np.int64, len(self.names))
            column = self._free[resource] = np.clip(column, -_MOST, _MOST)
        return column

    def has_room(self, need: Asked) -> npt.NDArray[np.bool_]:
        """Whether one copy fits, by number of the node."""
        found = np.ones(len(self.names), np.bool_)
        for resource, units in need:
            found &= self._column(resource) >= units if units <= _MOST else False
        return found

    def copies(self, need: Asked, most: int) -> Numbers:
        """How many copies of the need fit, by number of the node, but at most `most`."""
        found = np.full(len(self.names), most, np.int64)
        for resource, units in need:
            np.minimum(found, self._column(resource) // units if units <= _MOST else 0, out=found)
        return np.maximum(found, 0, out=found)

    def free(self, resource: ResourceKey) -> Numbers:
        """Free units of the resource, by number of the node; 0 where less is free."""
        return np.maximum(self._column(resource), 0)

    def times(self, need: Asked, at: Numbers) -> npt.NDArray[np.float64]:
        """As `fit.times`, for nodes with room for one copy."""
        found = np.full(len(at), np.inf)
        for resource, units in need if len(at) else ():
            np.minimum(found, self._column(resource)[at] / units, out=found)
        return found

    def part(self, need: Asked, at: Numbers) -> npt.NDArray[np.float64]:
        """The free fraction of the need on these nodes, as `fit.part`."""
        found = np.ones(len(at))
        for resource, units in need:
            np.minimum(found, np.maximum(self._column(resource)[at], 0) / units, out=found)
        return found

    def accepted(self, accepts: Accepts | None, at: Numbers) -> Numbers:
        return at if accepts is None else self.accepting(accepts, accepts, at)

    def named(self, at: Numbers) -> list[NodeName]:
        found: list[NodeName] = self._by_number[at].tolist()
        return found


def _clipped(units: int) -> int:
    return max(-_MOST, min(_MOST, units))


@dataclass(eq=False)
class NodeArrays:
    _rows: NodeRows
    _changes: Changes
    _names: list[NodeName] = field(default_factory=list, init=False)
    _numbers: dict[NodeName, int] = field(default_factory=dict, init=False)
    _present: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_), init=False)
    _free: Bounded[ResourceKey, Numbers] = field(default_factory=lambda: Bounded(_MOST_COLUMNS), init=False)
    read: int = field(default=0, init=False)
    """How many numbers were read from rows, one by one."""

    def offer(self, need: Asked, change: Mapping[NodeName, Vector] | None = None) -> Offer | None:
        """Room for copies of the need, with `change`; None: nothing asked, or numbers too large."""
        if not need or any(units > _MOST for _, units in need):
            return None
        self._refresh()
        free = [self._column(resource) for resource, _ in need]
        if changed := [name for name in change or () if name in self._numbers]:
            free = [column.copy() for column in free]
            for (resource, _), column in zip(need, free, strict=True):
                for name in changed:
                    number = self._numbers[name]
                    column[number] = self._free_on(name, resource, (change or {})[name].get(resource, 0))
        copies: Numbers = np.minimum.reduce([column // units for (_, units), column in zip(need, free, strict=True)])
        return Offer(need, self._names, self._present, free, np.where(self._present, np.maximum(copies, 0), 0))

    def names(self) -> list[NodeName]:
        """The nodes, in the order of all answers until a node comes or goes."""
        self._refresh()
        return self._names

    def __len__(self) -> int:
        """The number of present nodes."""
        self._refresh()
        return int(self._present.sum())

    def _refresh(self) -> None:
        changed = self._changes.drain_for_columns()
        known = self._numbers.__contains__
        if changed is None or len(self._names) != len(self._rows) or not all(map(known, changed)):
            self._names = list(self._rows)
            self._numbers = {name: number for number, name in enumerate(self._names)}
            self._present = np.array([row.present for row in self._rows.values()], np.bool_)
            self._free.clear()
            return
        for name in changed:
            self._present[self._numbers[name]] = self._rows.get(name, NOWHERE).present
        for resource, column in self._free.items():
            for name in changed:
                column[self._numbers[name]] = self._free_on(name, resource)

    def _column(self, resource: ResourceKey) -> Numbers:
        column = self._free.get(resource)
        if column is None:
            column = np.array([self._free_on(name, resource) for name in self._names], np.int64)
        self._free[resource] = column
        return column

    def _free_on(self, name: NodeName, resource: ResourceKey, more: int = 0) -> int:
        self.read += 1
        return _clipped(self._rows.free(name, resource) + more)


@dataclass(frozen=True, slots=True)
class Offer:
    """Valid until the ledger changes. `copies`: how often the need fits on each node."""

    need: Asked
    names: list[NodeName]
    present: npt.NDArray[np.bool_]
    free: list[Numbers]
    copies: Numbers

    @property
    def total(self) -> int:
        """The copies on all nodes together; each node counts up to `_MOST_COPIES`."""
        return int(np.minimum(self.copies, _MOST_COPIES).sum())

    def where(self) -> Iterator[tuple[NodeName, int]]:
        """The nodes that have room, each with its number of copies."""
        for number in np.flatnonzero(self.copies).tolist():
            yield self.names[number], int(self.copies[number])

    def nodes(self) -> list[NodeName]:
        """The nodes with room for one copy."""
        return [self.names[number] for number in np.flatnonzero(self.copies).tolist()]

    def lacks(self, but: frozenset[NodeName]) -> tuple[Short | None, tuple[ResourceKey, ...]]:
        """What most nodes lack once they are full of copies, and then what the others lack.

        The first includes the most that one of these nodes has free; the others are names. A node counts for the first
        resource that it lacks. `but`: nodes with room that get no copy."""
        open_ = self.present.copy()
        for number in np.flatnonzero(self.copies).tolist() if but else ():
            open_[number] = self.names[number] not in but
        found: list[tuple[int, int, Short]] = []
        for (resource, units), column in zip(self.need, self.free, strict=True):
            left = column - self.copies * units
            short = open_ & (left < units)
            open_ &= ~short
            if short.any():
                # If as many nodes lack another resource, the one that runs out first while copies are spread wins.
                first = int((self.copies[short] * len(self.names) + np.flatnonzero(short)).min())
                found.append((-int(short.sum()), first, Short(resource, units, int(left[short].max()))))
        if not found:
            return None, ()
        most = min(found, key=lambda each: each[:2])[2]
        return most, tuple(sorted(short.resource for *_, short in found if short is not most))
