"""Room to plan in: slots that want a node, and what would be free if a plan so far were committed.

Reads the ledger and changes nothing. Must not know how nodes are chosen: see `planning` and `aiming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.core.ledger import Holder, Kind, Ledger, Row, RowCopy
from extender.core.names import NodeName, ResourceKey
from extender.core.units import Vector

Accepts = Callable[[NodeName], bool]
Staying = Callable[[NodeName], Vector]
"""What stays on a node, whoever else leaves it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One member's place in a plan. `accepts` says which nodes it may be on; slots that share it are planned as one."""

    holder: Holder
    units: Vector
    accepts: Accepts | None = None


@dataclass(slots=True)
class Template:
    slots: list[Slot]
    need: tuple[tuple[ResourceKey, int], ...]
    accepts: Accepts | None


class Room:
    """What is free on the nodes if the plan so far were committed."""

    def __init__(self, ledger: Ledger, returning: Iterable[Holder], leaving: Iterable[Holder] = ()) -> None:
        """`returning`: what they hold is free, but for what is bound; `leaving`: also what is bound."""
        self.rows: Mapping[NodeName, Row | RowCopy] = ledger.rows
        self.change: dict[NodeName, dict[ResourceKey, int]] = {}
        given_up = dict.fromkeys(leaving, True)
        for holder in dict.fromkeys((*returning, *given_up)):
            holding = ledger.holding(holder)
            if holding is not None and (holding.kind is not Kind.BOUND or holder in given_up):
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
        return twin

    def lacking(self, node: NodeName, need: tuple[tuple[ResourceKey, int], ...]) -> tuple[ResourceKey, int] | None:
        """The first resource of which less is free than needed, and what is free of it; None if all fits."""
        row = self.rows.get(node)
        if row is None:
            return (need[0][0], 0) if need else None
        capacity, held, change = row.capacity, row.held, self.change.get(node)
        for resource, units in need:
            free = capacity.get(resource, 0) - held.get(resource, 0)
            if change is not None:
                free += change.get(resource, 0)
            if units > free:
                return resource, free
        return None

    def copies(self, node: NodeName, template: Template) -> tuple[int, float]:
        """How many slots of the template the node has room for: whole ones, and with the fraction that is left."""
        row = self.rows.get(node)
        if row is None:
            return 0, 0.0
        change = self.change.get(node, {})
        whole, exact = len(template.slots), float("inf")
        for resource, units in template.need:
            free = row.capacity.get(resource, 0) - row.held.get(resource, 0) + change.get(resource, 0)
            whole, exact = min(whole, free // units), min(exact, free / units)
        return max(whole, 0), exact

    def part(self, node: NodeName, need: tuple[tuple[ResourceKey, int], ...]) -> tuple[Vector, float]:
        """As much of the need as is free, and how large a part of it that is: of the scarcest resource, 0 to 1."""
        row, change = self.rows.get(node), self.change.get(node, {})
        part: dict[ResourceKey, int] = {}
        share = 1.0
        for resource, units in need:
            free = 0 if row is None else row.capacity.get(resource, 0) - row.held.get(resource, 0)
            part[resource] = max(0, min(units, free + change.get(resource, 0)))
            share = min(share, part[resource] / units)
        return part, share

    def take(self, node: NodeName, need: Iterable[tuple[ResourceKey, int]]) -> None:
        self._add(node, need, -1)

    def free(self, node: NodeName) -> dict[ResourceKey, int]:
        """What is free there, of each resource; below 0 where more is held than there is."""
        row, change = self.rows.get(node), self.change.get(node, {})
        found = dict(change)
        if row is not None:
            for resource in row.capacity.keys() | row.held.keys():
                units = row.capacity.get(resource, 0) - row.held.get(resource, 0)
                found[resource] = found.get(resource, 0) + units
        return found

    def give(self, node: NodeName, units: Vector) -> None:
        """So much more is free there."""
        self._add(node, units.items(), +1)

    def _add(self, node: NodeName, units: Iterable[tuple[ResourceKey, int]], sign: int) -> None:
        change = self.change.setdefault(node, {})
        for resource, number in units:
            change[resource] = change.get(resource, 0) + sign * number


def templates_of(slots: Sequence[Slot]) -> list[Template]:
    """Largest first: by the largest share of any resource of the whole gang's need; then the choosy; then as given."""
    found: dict[tuple[frozenset[tuple[ResourceKey, int]], Accepts | None], Template] = {}
    last: tuple[Slot, Template] | None = None
    for slot in slots:
        if last is not None and slot.accepts is last[0].accepts and slot.units == last[0].units:
            last[1].slots.append(slot)
            continue
        need = tuple((resource, units) for resource, units in slot.units.items() if units > 0)
        template = found.setdefault((frozenset(need), slot.accepts), Template([], need, slot.accepts))
        template.slots.append(slot)
        last = slot, template
    if len(found) <= 1:
        return list(found.values())
    total: dict[ResourceKey, int] = {}
    for template in found.values():
        for resource, units in template.need:
            total[resource] = total.get(resource, 0) + units * len(template.slots)

    def size(template: Template) -> tuple[float, bool]:
        share = max((units / total[resource] for resource, units in template.need), default=0.0)
        return share, template.accepts is not None

    return sorted(found.values(), key=size, reverse=True)
