"""Room to plan in: slots that want a node, and what would be free if a plan so far were committed.

Reads the ledger and changes nothing. Must not know how nodes are chosen: see `bin_packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop

import numpy as np

from extender.core import fit
from extender.core.cluster import Pod
from extender.core.ledger import Holder, HoldingKind, Ledger, Row, RowCopy
from extender.core.node_arrays import Accepts, Grid, Numbers
from extender.core.node_rows import NOWHERE
from extender.core.units import add_to
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

Staying = Callable[[NodeName], Vector]
"""What stays on a node, whoever else leaves it."""
_Where = tuple[Accepts | None, frozenset[NodeName] | None]
Lack = tuple[ResourceKey, int, int]
"""Of a resource: so much is asked for, and so much is free."""
Promised = Sequence[tuple[Pod, NodeName]]
"""Pods that are not bound, and on which node room is kept for each by others than us."""
FEW_TEMPLATES = 8
"""With more it is cheaper to read every node once into arrays."""
_FIRST_LOOK = 64
"""So many nodes with room are first asked about at once; then twice as many, and so on."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One member's place in a plan. `accepts` says which nodes it may be on; slots that share it are planned as one."""

    holder: Holder
    units: Vector
    accepts: Accepts | None = None
    only: frozenset[NodeName] | None = None
    """It accepts no others; None: that is not known."""

    @property
    def where(self) -> _Where:
        """Equal for slots that may be on the same nodes."""
        return self.accepts, self.only


@dataclass(slots=True)
class Template:
    """Slots that are alike: with the same needs, on the same nodes."""

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
        """Those that are worth a look for the template. O(nodes) once, where a template is known to accept few."""
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
        """`returning`: what they hold is free, but for what is bound; `leaving`: also what is bound."""
        self.rows: Mapping[NodeName, Row | RowCopy] = ledger.rows
        self.change: dict[NodeName, dict[ResourceKey, int]] = {}
        given_up = dict.fromkeys(leaving, True)
        for holder in dict.fromkeys((*returning, *given_up)):
            holding = ledger.holding(holder)
            if holding is not None and (holding.kind is not HoldingKind.BOUND or holder in given_up):
                self._add(holding.node, tuple(holding.units.items()), +1)

    @classmethod
    def emptied(cls, ledger: Ledger, nodes: Iterable[NodeName], staying: Staying) -> Room:
        """The nodes as if nothing were held there but what stays."""
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
        """So many kinds of slots are looked for on these nodes."""
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
        """The first resource of which less is free than needed, with both; None if all fits."""
        row = self.rows.get(node, NOWHERE)
        return fit.lacking(row.capacity, row.held, need, self.change.get(node))

    def copies(self, node: NodeName, need: fit.Asked, most: int) -> int:
        """How often the node has room for the need; not counted beyond `most`."""
        row = self.rows.get(node)
        return 0 if row is None else fit.copies(row.capacity, row.held, need, self.change.get(node), most)

    def times(self, node: NodeName, need: fit.Asked) -> float:
        """How often the need fits there, with the fraction that is left."""
        row = self.rows.get(node)
        return 0.0 if row is None else fit.times(row.capacity, row.held, need, self.change.get(node))

    def part(self, node: NodeName, need: fit.Asked) -> tuple[Vector, float]:
        """As much of the need as is free, and how large a part of it that is: of the scarcest resource, 0 to 1."""
        row = self.rows.get(node, NOWHERE)
        return fit.part(row.capacity, row.held, need, self.change.get(node))

    # All nodes at once: what is answered is what is above, node by node. Where the room is indexed, the names are among
    # those that are.

    def _grid_for(self, template: Template) -> Grid | None:
        """None: nodes are looked at one by one."""
        return self._grid if template.need and template.slots[0].only is None else None

    def touch(self, names: Iterable[NodeName]) -> None:
        """Something is planned on these nodes: `open_to` leaves them out where it goes in order."""
        if self._grid is not None:
            self._grid.untouched[[self._grid.numbers[name] for name in names]] = False

    def open_to(
        self, template: Template, names: Mapping[NodeName, None], lacks: list[Lack], *, in_order: bool
    ) -> Iterator[NodeName]:
        """Those of the names, in their order, that have room for one of the template and that it may be on. Only of
        what was yielded may be taken meanwhile. `lacks`: gets what others lack, where they are looked at one by one.
        `in_order`: they are those that were not touched, in the order of the index."""
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
        """Those of the names that have room for one, and that it may be on; and for how many in all, `most` on each."""
        grid, need = self._grid_for(template), template.need
        if grid is not None:
            copies = grid.copies(need, most)
            at = grid.accepted(template.slots[0].accepts, np.flatnonzero(copies))
            return grid.named(at), int(copies[at].sum())
        found = ((name, self.copies(name, need, most)) for name in dict.fromkeys(names))
        could = {name: whole for name, whole in found if whole and template.may_be_on(name)}
        return list(could), sum(could.values())

    def total(self, template: Template, names: Iterable[NodeName], most: int) -> int:
        """For how many of the template there is room on these nodes; not counted beyond `most`."""
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
        """Those of the names that have room, where it is least first. They accept the template."""
        grid, need = self._grid_for(template), template.need
        if grid is None:
            times = {name: self.times(name, need) for name in names}
            return sorted(names, key=times.__getitem__)
        at = grid.accepted(template.slots[0].accepts, np.flatnonzero(grid.has_room(need)))
        return iter(grid.named(at[np.argsort(grid.times(need, at), kind="stable")]))

    def largest_parts(self, template: Template, names: Sequence[NodeName], ever: Room) -> Iterator[tuple[float, int]]:
        """The nodes that `ever` have room for one, by number, where the largest part of it is free first; with less
        than 0 for how large that is. Some of them may not accept the template, and nothing may be taken meanwhile but
        of what was yielded."""
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
        """Whether there is surely no place for all of these, largest first: for so many of the least that the first few
        of them ask for. False says nothing, and where the room is not indexed nothing is looked at."""
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
        """What these need is not free."""
        for pod, node in promised:
            self.take(node, pod.requests.items())

    def free(self, node: NodeName) -> dict[ResourceKey, int]:
        """What is free there, of each resource; below 0 where more is held than there is."""
        row, found = self.rows.get(node, NOWHERE), dict(self.change.get(node, {}))
        add_to(found, row.capacity)
        add_to(found, row.held, -1)
        return found

    def give(self, node: NodeName, units: Vector) -> None:
        """So much more is free there."""
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
    """Those of these nodes that the template may be on, in their order: the first few, then more. Mostly the first few
    are enough."""
    start, end = 0, _FIRST_LOOK
    while start < len(at):
        yield grid.accepted(template.slots[0].accepts, at[start:end])
        start, end = end, 2 * end


def templates_of(slots: Sequence[Slot]) -> list[Template]:
    """Largest first, by `shares_of`; then the choosy; then as given."""
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
    """How large a slot of each is: by the largest share of any resource of what all of them need."""
    total: dict[ResourceKey, int] = {}
    for template in templates:
        for resource, units in template.need:
            total[resource] = total.get(resource, 0) + units * len(template.slots)
    return [max((units / total[resource] for resource, units in template.need), default=0.0) for template in templates]
