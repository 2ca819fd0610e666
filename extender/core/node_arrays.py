"""Columns: what is free on all nodes, resource by resource, as arrays: for questions that would look at every node.

The rule is `fit`'s, said of arrays; what is answered is what `fit` answers node by node, which tests compare. Filled
when somebody asks, and from then on kept for the nodes that change. Must not know plans, nor why anybody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from extender.core.bounded import Bounded
from extender.core.fit import Asked
from extender.core.node_matching import AcceptsPod
from extender.core.node_rows import NOWHERE, Changes, NodeRows
from extender.core.units import Short
from extender.kube.names import NodeName, ResourceKey
from extender.kube.node_match import PodRules
from extender.kube.quantities import Vector

Numbers = npt.NDArray[np.int64]
Accepts = Callable[[NodeName], bool]
"""Whether the node would have it, room apart."""
_MOST = 2**63 - 1
"""That a number in an array can be; no node says that it has more."""
_MOST_COPIES = 2**40
_FEW, _FEWER = 128, 16
"""Nodes that are asked one by one: so many take no longer than all at once; and where those have numbers already, or
where more than `_FEW_KEYS` are asked about."""
_FEW_KEYS = 8
_MOST_COLUMNS = 64
"""That are kept: tenants name the resources, and each column costs at every change of a node."""


class Accepting:
    """Which of these nodes are accepted, by whatever accepts nodes. No node is asked about twice."""

    def __init__(self, names: Sequence[NodeName]) -> None:
        self._names = names
        self._known: dict[Hashable, npt.NDArray[np.int8]] = {}
        """1 where it is accepted, -1 where it is not, 0 where nobody has asked."""
        self._rules: Callable[[PodRules], npt.NDArray[np.bool_]] | None = None
        """Which accept a pod by their own rules, once somebody has asked about many."""

    def __call__(self, key: Hashable, accepts: Accepts, at: Numbers) -> Numbers:
        """Those of these nodes, by number, that are accepted. `key`: equal for what accepts the same nodes."""
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
        """Which of the nodes accept the pod by their labels and taints, whatever is judged beside these."""
        if self._rules is None:
            self._rules = accepts.matching.over(self._names)
        return self._rules(accepts.pod)


class Grid:
    """What is free on some nodes, as arrays, for a plan that asks about all of them again and again. `read`: what each
    node has free of a resource, in order; it is asked once, and what is taken from then on is to be told."""

    def __init__(self, names: Sequence[NodeName], read: Callable[[ResourceKey], Iterable[int]]) -> None:
        self.names = names
        self.numbers = {name: number for number, name in enumerate(names)}
        self._by_number = np.array(names, object)
        self._read = read
        self._free: dict[ResourceKey, Numbers] = {}
        self.accepting = Accepting(names)
        self.untouched = np.ones(len(names), np.bool_)
        """Nodes that nothing was planned on yet, as far as the caller has told."""

    def copy(self, read: Callable[[ResourceKey], Iterable[int]]) -> Grid:
        """Another, of which `read` tells what this one has not read yet."""
        twin = object.__new__(Grid)
        twin.names, twin.numbers, twin._by_number = self.names, self.numbers, self._by_number
        twin._read, twin.accepting = read, self.accepting
        twin.untouched = self.untouched.copy()
        twin._free = {resource: column.copy() for resource, column in self._free.items()}
        return twin

    def add(self, name: NodeName, resource: ResourceKey, units: int) -> None:
        """So much more is free there."""
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
        """How often the need fits, by number of the node; not counted beyond `most`."""
        found = np.full(len(self.names), most, np.int64)
        for resource, units in need:
            np.minimum(found, self._column(resource) // units if units <= _MOST else 0, out=found)
        return np.maximum(found, 0, out=found)

    def times(self, need: Asked, at: Numbers) -> npt.NDArray[np.float64]:
        """As `fit.times`, of nodes that have room for one."""
        found = np.full(len(at), np.inf)
        for resource, units in need if len(at) else ():
            np.minimum(found, self._column(resource)[at] / units, out=found)
        return found

    def part(self, need: Asked, at: Numbers) -> npt.NDArray[np.float64]:
        """How large a part of the need is free, as `fit.part`, on these nodes."""
        found = np.ones(len(at))
        for resource, units in need:
            np.minimum(found, np.maximum(self._column(resource)[at], 0) / units, out=found)
        return found

    def accepted(self, accepts: Accepts | None, at: Numbers) -> Numbers:
        """Those of these nodes that it accepts."""
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
        """What the nodes that are there have free for copies of the need. `change`: so much more is free, by node.
        None: the numbers are too large for arrays, or nothing is asked for."""
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
        """The nodes, in the order of all that is answered until one comes or goes."""
        self._refresh()
        return self._names

    def __len__(self) -> int:
        """How many nodes are there."""
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
    """Good until the ledger changes. `copies`: how often the need fits on each node."""

    need: Asked
    names: list[NodeName]
    present: npt.NDArray[np.bool_]
    free: list[Numbers]
    copies: Numbers

    @property
    def total(self) -> int:
        """On all nodes together; not counted beyond what matters."""
        return int(np.minimum(self.copies, _MOST_COPIES).sum())

    def where(self) -> Iterator[tuple[NodeName, int]]:
        """The nodes that have room, and for how many."""
        for number in np.flatnonzero(self.copies).tolist():
            yield self.names[number], int(self.copies[number])

    def nodes(self) -> list[NodeName]:
        """Those that have room for one."""
        return [self.names[number] for number in np.flatnonzero(self.copies).tolist()]

    def lacks(self, but: frozenset[NodeName]) -> tuple[Short | None, tuple[ResourceKey, ...]]:
        """What most nodes lack once they are full of copies, and the most that one of these has free of it; and what
        the others lack, by name. Of two things that a node lacks, the first. `but`: nodes with room that none goes
        to."""
        open_ = self.present.copy()
        for number in np.flatnonzero(self.copies).tolist() if but else ():
            open_[number] = self.names[number] not in but
        found: list[tuple[int, int, Short]] = []
        for (resource, units), column in zip(self.need, self.free, strict=True):
            left = column - self.copies * units
            short = open_ & (left < units)
            open_ &= ~short
            if short.any():
                # Where as many lack another thing, it is what is lacking first while copies are spread.
                first = int((self.copies[short] * len(self.names) + np.flatnonzero(short)).min())
                found.append((-int(short.sum()), first, Short(resource, units, int(left[short].max()))))
        if not found:
            return None, ()
        most = min(found, key=lambda each: each[:2])[2]
        return most, tuple(sorted(short.resource for *_, short in found if short is not most))
