"""Trial snapshot: slots that need a node, and what would be free if a plan so far were committed.

It reads the ledger and changes nothing. `bin_packing` chooses the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop

import numpy as np

from extender.core.cluster import Pod
from extender.core.common.value import value
from extender.core.fit import fit
from extender.core.ledger.ledger import Holder, HoldingKind, Ledger, Row, RowCopy
from extender.core.ledger.node_arrays import Accepts, Grid, Numbers
from extender.core.ledger.node_rows import NOWHERE
from extender.core.ledger.units import add_to
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

Staying = Callable[[NodeName], Vector]
"""Units that stay on a node, whichever other pods leave it."""
_Where = tuple[Accepts | None, frozenset[NodeName] | None]
Lack = tuple[ResourceKey, int, int]
"""A resource, the units asked for, and the units free."""
Promised = Sequence[tuple[Pod, NodeName]]
"""Pods that are not bound, each with the node where another component keeps room for it."""
FEW_TEMPLATES = 8
"""With more templates it is cheaper to read every node once into arrays."""
_FIRST_LOOK = 64
"""Number of nodes with room that are checked first at once; each next batch is larger."""


@value
class Slot:
    """One member's place. `accepts`: allowed nodes; slots that share it form one template."""

    holder: Holder
    units: Vector
    accepts: Accepts | None = None
    only: frozenset[NodeName] | None = None
    """The only nodes that it accepts; None: not known."""

    @property
    def where(self) -> _Where:
        """Equal for slots that may be on the same nodes."""
        return self.accepts, self.only


@dataclass(slots=True)
class Template:
    """Slots with the same needs and the same allowed nodes."""

    slots: list[Slot]
    need: tuple[tuple[ResourceKey, int], ...]

    def may_be_on(self, node: NodeName) -> bool:
        accepts = self.slots[0].accepts
        return accepts is None or accepts(node)


class Candidates:
    """Nodes to choose from, in the order in which they are looked at."""

    def __init__(self, names: Sequence[NodeName]) -> None:
        self.names = names
        self._order: dict[NodeName, int] = {}

    def of(self, template: Template) -> Sequence[NodeName]:
        """The candidates that the template may accept. O(nodes) once, if `only` is known."""
        only = template.slots[0].only
        if only is None:
            return self.names
        if not self._order:
            self._order = {name: number for number, name in enumerate(dict.fromkeys(self.names))}
        return sorted(only & self._order.keys(), key=self._order.__getitem__)


class Room:
    """What is free on the nodes if the plan so far were committed."""

    _grid: Grid | None = None

    def __init__(self, ledger: Ledger, returning: Iterable[Holder], leaving: Iterable[Holder] = ()) -> None:
        """`returning`: what these hold is free unless it is bound; `leaving`: also what is bound."""
        self.rows: Mapping[NodeName, Row | RowCopy] = ledger.rows
        self.change: dict[NodeName, dict[ResourceKey, int]] = {}
        given_up = dict.fromkeys(leaving, True)
        for holder in dict.fromkeys((*returning, *given_up)):
            holding = ledger.holding(holder)
            if holding is not None and (holding.kind is not HoldingKind.BOUND or holder in given_up):
                self._add(holding.node, tuple(holding.units.items()), +1)

    @classmethod
    def emptied(cls, ledger: Ledger, nodes: Iterable[NodeName], staying: Staying) -> Room:
        """The nodes as if nothing were held there except what stays."""
        room = object.__new__(cls)
        rows = ((node, ledger.rows.get(node)) for node in nodes)
        room.rows = {node: RowCopy(row.capacity, staying(node), row.sequence) for node, row in rows if row is not None}
        room.change = {}
        return room

    def copy(self) -> Room:
        twin = object.__new__(Room)
        twin.rows = self.rows
        twin.change = {node: dict(change) for node, change in self.change.items()}
        if self._grid is not None:
            twin._grid = self._grid.copy(twin._reading(self._grid.names))
        return twin

    def index(self, names: Iterable[NodeName], kinds: int) -> None:
        """Prepares the search for `kinds` templates on these nodes."""
        self._grid = self.grid(names) if kinds > FEW_TEMPLATES else None

    def grid(self, names: Iterable[NodeName]) -> Grid:
        """What is free on these nodes."""
        there = list(dict.fromkeys(names))
        return Grid(there, self._reading(there))

    def _reading(self, names: Sequence[NodeName]) -> Callable[[ResourceKey], Iterable[int]]:
        rows, change = [self.rows.get(name, NOWHERE) for name in names], self.change

        def free(resource: ResourceKey) -> Iterator[int]:
            for name, row in zip(names, rows, strict=True):
                found = row.capacity.get(resource, 0) - row.held.get(resource, 0)
                yield found + change[name].get(resource, 0) if name in change else found

        return free

    def lacking(self, node: NodeName, need: fit.Asked) -> Lack | None:
        """The first resource that lacks, with the units asked for and free; None if all fits."""
        row = self.rows.get(node, NOWHERE)
        return fit.lacking(row.capacity, row.held, need, self.change.get(node))

    def copies(self, node: NodeName, need: fit.Asked, most: int) -> int:
        """How often the need fits on the node; not counted beyond `most`."""
        row = self.rows.get(node)
        return 0 if row is None else fit.copies(row.capacity, row.held, need, self.change.get(node), most)

    def times(self, node: NodeName, need: fit.Asked) -> float:
        """How often the need fits on the node, as a fraction."""
        row = self.rows.get(node)
        return 0.0 if row is None else fit.times(row.capacity, row.held, need, self.change.get(node))

    def part(self, node: NodeName, need: fit.Asked) -> tuple[Vector, float]:
        """The free part of the need, and its share of the need for the scarcest resource, 0 to 1."""
        row = self.rows.get(node, NOWHERE)
        return fit.part(row.capacity, row.held, need, self.change.get(node))

    # Methods for all nodes at once. The answers equal those of the methods above, node by node. If the room is indexed,
    # the names must be in the index.

    def _grid_for(self, template: Template) -> Grid | None:
        """The index, or None if nodes are looked at one by one."""
        return self._grid if template.need and template.slots[0].only is None else None

    def touch(self, names: Iterable[NodeName]) -> None:
        """Marks that something is planned on these nodes: `open_to` leaves them out if `in_order`."""
        if self._grid is not None:
            self._grid.untouched[[self._grid.numbers[name] for name in names]] = False

    def open_to(
        self, template: Template, names: Mapping[NodeName, None], lacks: list[Lack], *, in_order: bool
    ) -> Iterator[NodeName]:
        """The names, in order, that have room for one slot and that the template accepts.

        Until the next one is asked for, take room only on names already yielded. `lacks` collects what others lack, if
        nodes are looked at one by one. `in_order`: the names are the untouched ones, in the order of the index."""
        if (grid := self._grid_for(template)) is None:
            return self._open_one_by_one(template, names, lacks)
        has_room = grid.has_room(template.need)
        if in_order:
            return _open_to(grid, template, np.flatnonzero(has_room & grid.untouched))
        at = np.fromiter(map(grid.numbers.__getitem__, names), np.int64, len(names))
        return _open_to(grid, template, at[has_room[at]])

    def _open_one_by_one(self, template: Template, names: Iterable[NodeName], lacks: list[Lack]) -> Iterator[NodeName]:
        for name in names:
            if (lack := self.lacking(name, template.need)) is not None:
                lacks.append(lack)
            elif template.may_be_on(name):
                yield name

    def offer(self, template: Template, names: Sequence[NodeName], most: int) -> tuple[list[NodeName], int]:
        """The names with room that accept a slot, and the sum of copies (at most `most` each)."""
        grid, need = self._grid_for(template), template.need
        if grid is not None:
            copies = grid.copies(need, most)
            at = grid.accepted(template.slots[0].accepts, np.flatnonzero(copies))
            return grid.named(at), int(copies[at].sum())
        found = ((name, self.copies(name, need, most)) for name in dict.fromkeys(names))
        could = {name: whole for name, whole in found if whole and template.may_be_on(name)}
        return list(could), sum(could.values())

    def total(self, template: Template, names: Iterable[NodeName], most: int) -> int:
        """Number of copies of the template that fit on these nodes; not counted beyond `most`."""
        if self._grid_for(template) is not None:
            return self.offer(template, (), most)[1]
        found = 0
        for name in names:
            if found >= most:
                break
            if whole := self.copies(name, template.need, most):
                found += whole if template.may_be_on(name) else 0
        return found

    def tightest_first(self, template: Template, names: Sequence[NodeName]) -> Iterable[NodeName]:
        """The names that have room, least room first. The names accept the template."""
        grid, need = self._grid_for(template), template.need
        if grid is None:
            times = {name: self.times(name, need) for name in names}
            return sorted(names, key=times.__getitem__)
        at = grid.accepted(template.slots[0].accepts, np.flatnonzero(grid.has_room(need)))
        return iter(grid.named(at[np.argsort(grid.times(need, at), kind="stable")]))

    def largest_parts(self, template: Template, names: Sequence[NodeName], ever: Room) -> Iterator[tuple[float, int]]:
        """Pairs (-part, number) of nodes on which `ever` has room, largest free part first.

        Some may not accept the template. Meanwhile take room only on nodes already yielded."""
        grid, emptied, need = self._grid_for(template), ever._grid_for(template), template.need
        if grid is None or emptied is None:
            could = (number for number, name in enumerate(names) if ever.lacking(name, need) is None)
            heap = [(-self.part(names[number], need)[1], number) for number in could]
            heapify(heap)
            return (heappop(heap) for _ in range(len(heap)))
        at = np.flatnonzero(emptied.has_room(need))
        at = at[np.argsort(-grid.part(need, at), kind="stable")]
        return (
            each
            for some in _accepted(grid, template, at)
            for each in zip((-grid.part(need, some)).tolist(), some.tolist(), strict=True)
        )

    def is_too_small(self, templates: Sequence[Template]) -> bool:
        """Whether these templates, largest first, surely do not fit. False proves nothing."""
        if self._grid is None:
            return False
        least, asked, end = dict(templates[0].need), 0, 1
        for number, template in enumerate(templates, 1):
            need = dict(template.need)
            least = {resource: min(units, need[resource]) for resource, units in least.items() if resource in need}
            asked += len(template.slots)
            if number == end or number == len(templates):
                end *= 2
                if least and int(self._grid.copies(least.items(), asked).sum()) < asked:
                    return True
        return False

    def take(self, node: NodeName, need: Iterable[tuple[ResourceKey, int]]) -> None:
        self._add(node, need, -1)

    def keep_for(self, promised: Promised) -> None:
        """Takes the room of these pods."""
        for pod, node in promised:
            self.take(node, pod.requests.items())

    def free(self, node: NodeName) -> dict[ResourceKey, int]:
        """Free units of each resource on the node; below 0 if more is held than the capacity."""
        row, found = self.rows.get(node, NOWHERE), dict(self.change.get(node, {}))
        add_to(found, row.capacity)
        add_to(found, row.held, -1)
        return found

    def give(self, node: NodeName, units: Vector) -> None:
        """Adds free units on the node."""
        self._add(node, units.items(), +1)

    def _add(self, node: NodeName, units: Iterable[tuple[ResourceKey, int]], sign: int) -> None:
        change = self.change.setdefault(node, {})
        for resource, number in units:
            change[resource] = change.get(resource, 0) + sign * number
            if self._grid is not None:
                self._grid.add(node, resource, sign * number)


def _open_to(grid: Grid, template: Template, at: Numbers) -> Iterator[NodeName]:
    for some in _accepted(grid, template, at):
        yield from grid.named(some)


def _accepted(grid: Grid, template: Template, at: Numbers) -> Iterator[Numbers]:
    """The nodes that the template accepts, in order, in growing batches: the first mostly suffices."""
    start, end = 0, _FIRST_LOOK
    while start < len(at):
        yield grid.accepted(template.slots[0].accepts, at[start:end])
        start, end = end, 2 * end


def templates_of(slots: Sequence[Slot]) -> list[Template]:
    """Templates of the slots: largest first by `shares_of`, then those with `accepts`."""
    found: dict[tuple[frozenset[tuple[ResourceKey, int]], _Where], Template] = {}
    last: tuple[Slot, Template] | None = None
    for slot in slots:
        if last is not None and slot.where == last[0].where and slot.units == last[0].units:
            last[1].slots.append(slot)
            continue
        need = fit.asked_of(slot.units)
        template = found.setdefault((frozenset(need), slot.where), Template([], need))
        template.slots.append(slot)
        last = slot, template
    templates = list(found.values())
    if len(templates) <= 1:
        return templates
    shares = shares_of(templates)
    choosy = [template.slots[0].accepts is not None for template in templates]
    order = sorted(range(len(templates)), key=lambda number: (shares[number], choosy[number]), reverse=True)
    return [templates[number] for number in order]


def shares_of(templates: Sequence[Template]) -> list[float]:
    """The size of a slot of each template: its largest share of any resource of the need of all."""
    total: dict[ResourceKey, int] = {}
    for template in templates:
        for resource, units in template.need:
            total[resource] = total.get(resource, 0) + units * len(template.slots)
    return [max((units / total[resource] for resource, units in template.need), default=0.0) for template in templates]
