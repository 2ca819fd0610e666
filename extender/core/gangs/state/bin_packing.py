"""Packing: where all slots of a gang fit at once, or that they do not.

Reads the ledger and changes nothing; what it answers is committed, or dropped, by the caller. Candidates are tried in
the order given, so that the same inputs give the same plan. Must not know pods, gangs or why a node is a candidate.

Slots of the same units and the same `accepts` form a template. Members of a real gang come from one to three templates.

- One template: exact. A plan is found if there is one.
- Several: bin packing in several dimensions, for which nothing exact is fast. First the spread: largest template
  first, one slot a node, then a second round. Where that fails, though each template alone would fit, each slot goes on
  the node where it leaves least: largest template first, and then the one with the least choice first. The last try,
  where it is cheap enough, looks after each slot which has the least choice left. All of them can miss a plan that
  exists; tests/core/test_planner.py shows one.

Cost: O(slots) where there is room; O(templates x candidates) where there is not, of which little where one template is
tried on all nodes (`columns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from extender.core.gangs.state.trial_snapshot import Candidates, Lack, Room, Slot, Template, templates_of
from extender.core.ledger import Holder, Ledger
from extender.core.node_arrays import Offer
from extender.core.units import Short
from extender.kube.names import NodeName, ResourceKey

__all__ = ["Shortfall", "Slot", "plan"]


_MANY = 64
"""With fewer candidates it is no dearer to look at each."""
_MOST_STEPS = 50_000
"""Of the try that looks at every choice again after each slot: slots x templates x nodes."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """No plan was found: `placed` of `asked` slots found a node, largest first, until one did not.

    `cause`: for that one, the resource of which most nodes had too little, and the most that one of those had free.
    None if it was not room that was missing: there were no candidates, or none that its `accepts` accepts; or, as
    `rule` then says, what it requires of the pods around it kept it from every node with room. `others`: of what the
    other nodes had too little, by name. `unsure`: a bound ended the search, so it proves nothing.
    """

    placed: int
    asked: int
    cause: Short | None
    rule: str = ""
    others: tuple[ResourceKey, ...] = ()
    unsure: bool = False

    @property
    def kind(self) -> str:
        """What was missing, whatever the numbers."""
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
    """A node for every slot, such that committing them all on the ledger as it is now meets no conflict; or Shortfall.

    Counted as free: what the holders in `releasing` hold, and what the slots' own holders hold, for both are given up
    by the transaction that commits the plan; but not what is bound. `leaving`: holders whose units count as free though
    they are bound; a plan with any is what could be, and can be committed when they are gone. `room`: what
    is free, where the caller has counted it; it is used up. A node that the ledger does not know has no room.
    `filling`: no candidate is taken before those ahead of it are full, if that will do.
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
    # A shortfall within the first template is final: nothing else was in its way.
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
    """What the spread over all comes to, where it does not come to the end of the first few; else None."""
    asked = len(template.slots)
    # Once, though it be sent twice.
    first = dict.fromkeys(islice(candidates, 2 * asked))
    could = (node for node in first if room.lacking(node, template.need) is None)
    nodes = list(islice(filter(template.may_be_on, could), asked))
    if len(nodes) < asked:
        return None
    for node in nodes:
        room.take(node, template.need)
    return {slot.holder: node for slot, node in zip(template.slots, nodes, strict=True)}


def _too_few(offer: Offer | None, template: Template) -> Shortfall | None:
    """What the spread over all nodes would come to, where these have room for too few; None where it is to be seen."""
    asked = len(template.slots)
    if offer is None or offer.total >= asked:
        return None
    with_room = dict(offer.where())
    refusing = frozenset(node for node in with_room if not template.may_be_on(node))
    placed = sum(copies for node, copies in with_room.items() if node not in refusing)
    cause, others = offer.lacks(refusing)
    return Shortfall(placed, asked, cause, others=others)


def _fill(room: Room, templates: Sequence[Template], candidates: Candidates) -> dict[Holder, NodeName]:
    """As many slots on a node as it has room for, before the next; empty if one finds no node."""
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
    """One slot a node, then a second round on those that have room, and so on."""
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
            # The first round is in the order of the candidates, less those that have gone on.
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
            # With arrays nobody has told: what each lacks is what it lacked when it was looked at last.
            lacks = lacks or [lack for node in seen if (lack := room.lacking(node, need)) is not None]
            cause, others = cause_of(lacks)
            return nodes, Shortfall(len(nodes), asked, cause, others=others)
    return nodes, None


def cause_of(lacks: Sequence[Lack]) -> tuple[Short | None, tuple[ResourceKey, ...]]:
    """Of what was lacking, node by node, as `Room.lacking` tells: what most lacked, and the most that one of these had
    free; and what the others lacked, by name."""
    if not lacks:
        return None, ()
    times = Counter(resource for resource, _, _ in lacks)
    short_of = max(times, key=times.__getitem__)
    asked, free = max((asked, free) for resource, asked, free in lacks if resource == short_of)
    return Short(short_of, asked, free), tuple(sorted(times.keys() - {short_of}))


@dataclass(frozen=True, slots=True)
class _Offer:
    """What the candidates offer one template alone: those with room for it, and for how many copies in all."""

    template: Template
    nodes: Sequence[NodeName]
    copies: int


def _offer(room: Room, template: Template, candidates: Candidates) -> _Offer:
    return _Offer(template, *room.offer(template, candidates.of(template), len(template.slots)))


def _pack(room: Room, offers: Sequence[_Offer]) -> dict[Holder, NodeName]:
    """Each slot on the node where it leaves least, templates in the order of the offers; empty if one finds no node."""
    nodes: dict[Holder, NodeName] = {}
    for offer in offers:
        template, left = offer.template, len(offer.template.slots)
        waiting = iter(template.slots)
        # Where it fits least often is tightest, and stays so while it is filled.
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
    """Each slot of the template that has the least choice left, on the node that fewest others want; empty if one finds
    none, or if it would take too long."""
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
