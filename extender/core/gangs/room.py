"""Room to plan in: slots that want a node, and what would be free if a plan so far were committed.

Reads the ledger and changes nothing. Must not know how nodes are chosen: see `packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.core import fit
from extender.core.cluster import Pod
from extender.core.ledger import Holder, HoldingKind, Ledger, Row, RowCopy
from extender.core.rows import NOWHERE
from extender.core.units import add_to
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

Accepts = Callable[[NodeName], bool]
Staying = Callable[[NodeName], Vector]
"""What stays on a node, whoever else leaves it."""
_Where = tuple[Accepts | None, frozenset[NodeName] | None]
Promised = Sequence[tuple[Pod, NodeName]]
"""Pods that are not bound, and on which node room is kept for each by others than us."""


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
        return twin

    def lacking(self, node: NodeName, need: fit.Asked) -> tuple[ResourceKey, int, int] | None:
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
