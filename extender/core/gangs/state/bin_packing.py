"""Bin packing: finds a node for every slot of a gang, or says why it found none.

It reads the ledger and changes nothing. The caller commits the plan or drops it. Candidates are tried in the order
given, so that the same inputs give the same plan.

Slots with the same units and the same `accepts` form a template. Members of a real gang come from one to three
templates.

- One template: exact. A plan is found if one exists.
- Several templates: bin packing in several dimensions, for which no fast exact method exists. The first try spreads:
  largest template first, one slot a node, then a second round. If that fails although each template alone would fit,
  each slot goes on the node where it leaves least. That is tried with the largest template first, then with the
  template that has the least choice first. The last try, if it is cheap enough, finds after each slot which template
  has the least choice left. All tries can miss a plan that exists; tests/core/test_planner.py shows one.

Cost: O(slots) if there is room, else O(templates x candidates). The second cost is small if one template is tried on
all nodes (`columns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from extender.core.gangs.state.trial_snapshot import Candidates, Lack, Room, Slot, Template, templates_of
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.node_arrays import Offer
from extender.core.ledger.units import Short
from extender.kube.names import NodeName, ResourceKey

__all__ = ["Shortfall", "Slot", "plan"]


_MANY = 64
"""With fewer candidates, a look at each of them costs no more."""
_MOST_STEPS = 50_000
"""Bound of `_one_by_one`, which recounts after each slot: slots x nodes of all templates."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """No plan was found: `placed` of `asked` slots found a node, largest first, until one did not.

    `cause`: the resource that most nodes lacked for that slot, and the most that one of those nodes had free. None if
    room was not what lacked: there were no candidates, or `accepts` refused all. None also if the slot's requirements
    on other pods kept it from every node with room; `rule` then says so. `others`: names of the resources that the
    other nodes lacked. `unsure`: a bound ended the search, so it proves nothing.
    """

    placed: int
    asked: int
    cause: Short | None
    rule: str = ""
    others: tuple[ResourceKey, ...] = ()
    unsure: bool = False

    @property
    def kind(self) -> str:
        """What was missing, without numbers."""
        return self.rule or ("" if self.cause is None else self.cause.resource)


def plan(
    ledger: Ledger,
    slots: Sequence[Slot],
    candidates: Sequence[NodeName],
    *,
    releasing: Sequence[Holder] = (),
    leaving: Sequence[Holder] = (),
    room: Room | None = None,
    filling: bool = False,
) -> dict[Holder, NodeName] | Shortfall:
    """A node for every slot, or `Shortfall`. The plan can be committed on the ledger as it is now.

    What the holders in `releasing` and the slots' own holders hold counts as free, unless it is bound. The transaction
    that commits the plan gives it up. `leaving`: holders whose units count as free even if bound. A plan that uses them
    can be committed only when they are gone. `room`: what is free, if the caller has counted it; it is used up. A node
    that the ledger does not have has no room. `filling`: fill each candidate before the next is used, if that works.
    """
    room = room or Room(ledger, [*releasing, *(slot.holder for slot in slots)], leaving)
    templates = templates_of(slots)
    room.index(candidates, len(templates))
    here = Candidates(candidates)
    if filling and (filled := _fill(room.copy(), templates, here)):
        return filled
    before = room.copy() if len(templates) > 1 else room
    if len(templates) == 1 and room.rows is ledger.rows and len(candidates) >= _MANY:
        if (apart := _apart(room, templates[0], candidates)) is not None:
            return apart
        if len(candidates) >= len(ledger.columns):
            found = _too_few(ledger.columns.offer(templates[0].need, room.change), templates[0])
            if found is not None:
                return found
    nodes, shortfall = _spread(room, templates, here)
    # A shortfall within the first template is final: no other slot took its room.
    if shortfall is not None and shortfall.placed >= len(templates[0].slots) and not before.is_too_small(templates):
        offers = [_offer(before, template, here) for template in templates]
        if all(offer.copies >= len(offer.template.slots) for offer in offers):
            least_choice = sorted(offers, key=lambda offer: offer.copies / len(offer.template.slots))
            nodes = (
                _pack(before.copy(), offers) or _pack(before.copy(), least_choice) or _one_by_one(before, least_choice)
            )
    if shortfall is not None and len(nodes) < len(slots):
        return shortfall
    return {slot.holder: nodes[slot.holder] for slot in slots}


def _apart(room: Room, template: Template, candidates: Sequence[NodeName]) -> dict[Holder, NodeName] | None:
    """The result of the spread, if the first `2 * asked` candidates suffice; else None."""
    asked = len(template.slots)
    # Each name once, even if the candidates repeat it.
    first = dict.fromkeys(islice(candidates, 2 * asked))
    could = (node for node in first if room.lacking(node, template.need) is None)
    nodes = list(islice(filter(template.may_be_on, could), asked))
    if len(nodes) < asked:
        return None
    for node in nodes:
        room.take(node, template.need)
    return {slot.holder: node for slot, node in zip(template.slots, nodes, strict=True)}


def _too_few(offer: Offer | None, template: Template) -> Shortfall | None:
    """The shortfall of the spread if all nodes lack room; None if only the spread can say."""
    asked = len(template.slots)
    if offer is None or offer.total >= asked:
        return None
    with_room = dict(offer.where())
    refusing = frozenset(node for node in with_room if not template.may_be_on(node))
    placed = sum(copies for node, copies in with_room.items() if node not in refusing)
    cause, others = offer.lacks(refusing)
    return Shortfall(placed, asked, cause, others=others)


def _fill(room: Room, templates: Sequence[Template], candidates: Candidates) -> dict[Holder, NodeName]:
    """As many slots on a node as fit, before the next node; empty if a slot finds no node."""
    nodes: dict[Holder, NodeName] = {}
    names = dict.fromkeys(candidates.names)
    for template in templates:
        left = list(template.slots)
        for node in room.open_to(template, names, [], in_order=True):
            for _ in range(room.copies(node, template.need, len(left))):
                nodes[left.pop(0).holder] = node
                room.take(node, template.need)
            if not left:
                break
        if left:
            return {}
    return nodes


def _spread(
    room: Room, templates: Sequence[Template], candidates: Candidates
) -> tuple[dict[Holder, NodeName], Shortfall | None]:
    """Places one slot a node, then a second round on the nodes that still have room, and so on."""
    asked = sum(len(template.slots) for template in templates)
    rounds = [dict.fromkeys(candidates.names)]
    nodes: dict[Holder, NodeName] = {}
    for template in templates:
        need, waiting = template.need, iter(template.slots)
        names = candidates.of(template)
        anywhere = names is candidates.names
        slot = next(waiting, None)
        lacks: list[Lack] = []
        number = 0
        while slot is not None and number < len(rounds):
            there, go_on = rounds[number], dict[NodeName, None]()
            names_there = there if anywhere else dict.fromkeys(each for each in names if each in there)
            # The first round follows the order of the candidates, without the nodes that have moved to the next round.
            for node in room.open_to(template, names_there, lacks, in_order=not number):
                nodes[slot.holder] = node
                room.take(node, need)
                go_on[node] = None
                slot = next(waiting, None)
                if slot is None:
                    break
            for node in go_on:
                del there[node]
            room.touch(go_on)
            number += 1
            if go_on:
                if number == len(rounds):
                    rounds.append({})
                rounds[number].update(go_on)
        if slot is not None:
            seen = (node for there in rounds for node in (there if anywhere else names) if node in there)
            # With arrays no lacks were collected. Each node still lacks what it lacked when it was looked at last.
            lacks = lacks or [lack for node in seen if (lack := room.lacking(node, need)) is not None]
            cause, others = cause_of(lacks)
            return nodes, Shortfall(len(nodes), asked, cause, others=others)
    return nodes, None


def cause_of(lacks: Sequence[Lack]) -> tuple[Short | None, tuple[ResourceKey, ...]]:
    """The resource that most nodes lacked, with the most that one had free; and the others by name."""
    if not lacks:
        return None, ()
    times = Counter(resource for resource, _, _ in lacks)
    short_of = max(times, key=times.__getitem__)
    asked, free = max((asked, free) for resource, asked, free in lacks if resource == short_of)
    return Short(short_of, asked, free), tuple(sorted(times.keys() - {short_of}))


@dataclass(frozen=True, slots=True)
class _Offer:
    """What the candidates offer one template alone: the nodes with room, and the sum of copies."""

    template: Template
    nodes: Sequence[NodeName]
    copies: int


def _offer(room: Room, template: Template, candidates: Candidates) -> _Offer:
    return _Offer(template, *room.offer(template, candidates.of(template), len(template.slots)))


def _pack(room: Room, offers: Sequence[_Offer]) -> dict[Holder, NodeName]:
    """Each slot on the node where it leaves least, in the order of the offers; empty if one fails."""
    nodes: dict[Holder, NodeName] = {}
    for offer in offers:
        template, left = offer.template, len(offer.template.slots)
        waiting = iter(template.slots)
        # The node where the slot fits least often is tightest, and stays tightest while it is filled.
        for node in room.tightest_first(template, offer.nodes):
            for slot in islice(waiting, room.copies(node, template.need, len(template.slots))):
                nodes[slot.holder] = node
                room.take(node, template.need)
                left -= 1
            if not left:
                break
        if left:
            return {}
    return nodes


def _one_by_one(room: Room, offers: Sequence[_Offer]) -> dict[Holder, NodeName]:
    """Each slot of the template with least choice, on the node that fewest others want.

    Empty if a slot finds no node, or if the search would exceed `_MOST_STEPS`."""
    waiting = {index: list(offer.template.slots) for index, offer in enumerate(offers)}
    if sum(map(len, waiting.values())) * sum(len(offer.nodes) for offer in offers) > _MOST_STEPS:
        return {}

    def count(node: NodeName, offer: _Offer) -> int:
        return room.copies(node, offer.template.need, len(offer.template.slots))

    copies = [{node: count(node, offer) for node in offer.nodes} for offer in offers]
    nodes: dict[Holder, NodeName] = {}
    while waiting:
        scarcest = min(waiting, key=lambda index: sum(copies[index].values()) / len(waiting[index]))
        open_nodes = [node for node, count in copies[scarcest].items() if count]
        if not open_nodes:
            return {}
        node = min(open_nodes, key=lambda node: sum(bool(copies[index].get(node)) for index in waiting))
        nodes[waiting[scarcest].pop().holder] = node
        room.take(node, offers[scarcest].template.need)
        if not waiting[scarcest]:
            del waiting[scarcest]
        for index in waiting:
            if node in copies[index]:
                copies[index][node] = count(node, offers[index])
    return nodes
