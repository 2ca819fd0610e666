"""Aiming: which nodes the slots of a gang should wait for that has no plan and is to be given room as it comes free.

Reads the ledger and changes nothing. Must not know whose turn it is, nor when: see `turns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from extender.core.ledger import Holder, Holding, Ledger
from extender.core.names import NodeName
from extender.core.room import Room, Slot, Staying, templates_of
from extender.core.units import Vector

_NOTHING: Vector = MappingProxyType({})


def aim(
    ledger: Ledger,
    slots: Sequence[Slot],
    candidates: Sequence[NodeName],
    staying: Staying = lambda node: _NOTHING,
    *,
    releasing: Sequence[Holder] = (),
    kept: Sequence[Holding] = (),
) -> dict[Holder, tuple[NodeName, Vector]] | None:
    """For every slot the node that it should wait for, and what of its units is free there; None if the slots would
    have no room even if nothing were held but what stays.

    Nodes with room now come first, then those where the largest part of a slot is free. What holders in `releasing`
    hold counts as free; `kept` is what would be held even then. O(slots + candidates x templates), and a logarithm.
    """
    now = Room(ledger, [*releasing, *(slot.holder for slot in slots)])
    ever = Room.emptied(ledger, candidates, staying)
    for held in kept:
        ever.take(held.node, held.units.items())
    aims: dict[Holder, tuple[NodeName, Vector]] = {}
    for template in templates_of(slots):
        need, waiting = template.need, iter(template.slots)
        nodes = [
            node
            for node in dict.fromkeys(candidates)
            if ever.lacking(node, need) is None and (template.accepts is None or template.accepts(node))
        ]
        slot = next(waiting, None)
        largest = [(-now.part(node, need)[1], index) for index, node in enumerate(nodes)]
        heapify(largest)
        while slot is not None:
            if not largest:
                return None
            _, index = heappop(largest)
            node = nodes[index]
            if ever.lacking(node, need) is not None:
                continue
            part, _ = now.part(node, need)
            aims[slot.holder] = (node, part)
            now.take(node, part.items())
            ever.take(node, need)
            heappush(largest, (-now.part(node, need)[1], index))
            slot = next(waiting, None)
    return aims
