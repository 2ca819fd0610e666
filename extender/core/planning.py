"""Planning: where all slots of a gang fit at once, or that they do not.

Reads the ledger and changes nothing; what it answers is committed, or dropped, by the caller. Candidates are tried in
the order given, so that the same inputs give the same plan. Must not know pods, gangs or why a node is a candidate.

Slots of the same units and the same `accepts` form a template. Members of a real gang come from one to three templates.

- One template: exact. A plan is found if there is one.
- Several: bin packing in several dimensions, for which nothing exact is fast. First the spread: largest template
  first, one slot a node, then a second round. Where that fails, though each template alone would fit, each slot goes on
  the node where it leaves least: largest template first, and then the one with the least choice first. All three can
  miss a plan that exists; tests/core/test_planning.py shows one.

Cost: O(slots) where there is room; O(templates x candidates) where there is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from extender.core.ledger import Holder, Holding, Kind, Ledger
from extender.core.names import NodeName, ResourceKey
from extender.core.units import Short, Vector

Accepts = Callable[[NodeName], bool]


@dataclass(frozen=True, slots=True)
class Slot:
    """One member's place in a plan. `accepts` says which nodes it may be on; slots that share it are planned as one."""

    holder: Holder
    units: Vector
    accepts: Accepts | None = None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """No plan was found: `placed` of `asked` slots found a node, largest first, until one did not.

    `cause`: for that one, the resource of which most nodes had too little, and the most that one of those had free.
    None if it was not room that was missing: there were no candidates, or none that its `accepts` accepts.
    """

    placed: int
    asked: int
    cause: Short | None


@dataclass(slots=True)
class _Template:
    slots: list[Slot]
    need: tuple[tuple[ResourceKey, int], ...]
    accepts: Accepts | None


class _Room:
    """What is free on the nodes if the plan so far were committed."""

    def __init__(self, ledger: Ledger, returning: Iterable[Holder]) -> None:
        self.rows = ledger.rows
        self.change: dict[NodeName, dict[ResourceKey, int]] = {}
        for holder in dict.fromkeys(returning):
            if (holding := ledger.holding(holder)) is not None and holding.kind is not Kind.BOUND:
                self._add(holding.node, tuple(holding.units.items()), +1)

    def copy(self) -> _Room:
        twin = object.__new__(_Room)
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

    def copies(self, node: NodeName, template: _Template) -> tuple[int, float]:
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

    def take(self, node: NodeName, need: tuple[tuple[ResourceKey, int], ...]) -> None:
        self._add(node, need, -1)

    def _add(self, node: NodeName, units: tuple[tuple[ResourceKey, int], ...], sign: int) -> None:
        change = self.change.setdefault(node, {})
        for resource, number in units:
            change[resource] = change.get(resource, 0) + sign * number


def plan(
    ledger: Ledger, slots: Sequence[Slot], candidates: Sequence[NodeName], *, releasing: Sequence[Holder] = ()
) -> dict[Holder, NodeName] | Shortfall:
    """A node for every slot, such that committing them all on the ledger as it is now meets no conflict; or Shortfall.

    Counted as free: what the holders in `releasing` hold, and what the slots' own holders hold, for both are given up
    by the transaction that commits the plan; but not what is bound. A node that the ledger does not know has no room.
    """
    room = _Room(ledger, [*releasing, *(slot.holder for slot in slots)])
    templates = _templates(slots)
    before = room.copy() if len(templates) > 1 else room
    nodes, shortfall = _spread(room, templates, candidates)
    # A shortfall within the first template is final: nothing else was in its way.
    if shortfall is not None and shortfall.placed >= len(templates[0].slots):
        offers = [_offer(before, template, candidates) for template in templates]
        if all(offer.copies >= len(offer.template.slots) for offer in offers):
            least_choice = sorted(offers, key=lambda offer: offer.copies / len(offer.template.slots))
            nodes = _pack(before.copy(), offers) or _pack(before, least_choice)
    if shortfall is not None and len(nodes) < len(slots):
        return shortfall
    return {slot.holder: nodes[slot.holder] for slot in slots}


def move(
    ledger: Ledger, holding: Holding, candidates: Sequence[NodeName], accepts: Accepts | None = None
) -> NodeName | None:
    """Another node among the candidates where the holding fits once it leaves its own; None if there is none.

    The first that carries no reservation or assumption, so that a gang stays spread; else the first that fits.
    """
    room = _Room(ledger, ())
    need = tuple((resource, units) for resource, units in holding.units.items() if units > 0)
    second: NodeName | None = None
    for node in candidates:
        crowded = node in ledger.unbound_on
        if (crowded and second is not None) or node == holding.node or room.lacking(node, need) is not None:
            continue
        if accepts is not None and not accepts(node):
            continue
        if not crowded:
            return node
        second = node
    return second


def _templates(slots: Sequence[Slot]) -> list[_Template]:
    """Largest first: by the largest share of any resource of the whole gang's need; then the choosy; then as given."""
    found: dict[tuple[frozenset[tuple[ResourceKey, int]], Accepts | None], _Template] = {}
    last: tuple[Slot, _Template] | None = None
    for slot in slots:
        if last is not None and slot.accepts is last[0].accepts and slot.units == last[0].units:
            last[1].slots.append(slot)
            continue
        need = tuple((resource, units) for resource, units in slot.units.items() if units > 0)
        template = found.setdefault((frozenset(need), slot.accepts), _Template([], need, slot.accepts))
        template.slots.append(slot)
        last = slot, template
    if len(found) <= 1:
        return list(found.values())
    total: dict[ResourceKey, int] = {}
    for template in found.values():
        for resource, units in template.need:
            total[resource] = total.get(resource, 0) + units * len(template.slots)

    def size(template: _Template) -> tuple[float, bool]:
        share = max((units / total[resource] for resource, units in template.need), default=0.0)
        return share, template.accepts is not None

    return sorted(found.values(), key=size, reverse=True)


def _spread(
    room: _Room, templates: Sequence[_Template], candidates: Sequence[NodeName]
) -> tuple[dict[Holder, NodeName], Shortfall | None]:
    """One slot a node, then a second round on those that have room, and so on."""
    asked = sum(len(template.slots) for template in templates)
    rounds: list[list[NodeName]] = [list(candidates)]
    nodes: dict[Holder, NodeName] = {}
    for template in templates:
        need, may_be_on, waiting = template.need, template.accepts, iter(template.slots)
        slot = next(waiting, None)
        lacks: dict[ResourceKey, int] = {}
        most: dict[ResourceKey, int] = {}
        number = 0
        while slot is not None and number < len(rounds):
            stay: list[NodeName] = []
            go_on: list[NodeName] = []
            for index, node in enumerate(rounds[number]):
                if slot is None:
                    stay += rounds[number][index:]
                    break
                lack = room.lacking(node, need)
                if lack is not None:
                    resource, free = lack
                    lacks[resource] = lacks.get(resource, 0) + 1
                    most[resource] = max(most.get(resource, free), free)
                    stay.append(node)
                elif may_be_on is not None and not may_be_on(node):
                    stay.append(node)
                else:
                    nodes[slot.holder] = node
                    room.take(node, need)
                    go_on.append(node)
                    slot = next(waiting, None)
            rounds[number] = stay
            number += 1
            if go_on:
                if number == len(rounds):
                    rounds.append([])
                rounds[number] += go_on
        if slot is not None:
            short_of = max(lacks, key=lacks.__getitem__, default=None)
            cause = None if short_of is None else Short(short_of, dict(need)[short_of], most[short_of])
            return nodes, Shortfall(len(nodes), asked, cause)
    return nodes, None


@dataclass(frozen=True, slots=True)
class _Offer:
    """What the candidates offer one template alone: those with room for it, and for how many copies in all."""

    template: _Template
    nodes: Sequence[NodeName]
    copies: int


def _offer(room: _Room, template: _Template, candidates: Sequence[NodeName]) -> _Offer:
    nodes: list[NodeName] = []
    copies = 0
    for node in dict.fromkeys(candidates):
        whole, _ = room.copies(node, template)
        if whole and (template.accepts is None or template.accepts(node)):
            nodes.append(node)
            copies += whole
    return _Offer(template, nodes, copies)


def _pack(room: _Room, offers: Sequence[_Offer]) -> dict[Holder, NodeName]:
    """Each slot on the node where it leaves least, templates in the order of the offers; empty if one finds no node."""
    nodes: dict[Holder, NodeName] = {}
    for offer in offers:
        template, waiting = offer.template, iter(offer.template.slots)
        copies = {node: room.copies(node, template) for node in offer.nodes}
        # Where it fits least often is tightest, and stays so while it is filled.
        for node in sorted(offer.nodes, key=lambda node: copies[node][1]):
            for slot in islice(waiting, copies[node][0]):
                nodes[slot.holder] = node
                room.take(node, template.need)
        if next(waiting, None) is not None:
            return {}
    return nodes
