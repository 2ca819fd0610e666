"""Nomination: of the places that a plan has, each member gets the one that kube-scheduler already keeps for it.

kube-scheduler counts a nominated pod on its node against all others of no higher priority, its gang's included: a plan
with the same nodes dealt out otherwise would send members where it lets them no more. Must not know why a pod was
nominated: see `preempting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core.ledger import Holder
from extender.core.names import NodeName, PodUid
from extender.core.room import Slot


def as_nominated(
    slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], nominated: Mapping[PodUid, NodeName]
) -> Mapping[Holder, NodeName]:
    """The same plan, where slots that are alike have changed places so that as many as can be are as nominated."""
    if not nominated:
        return nodes
    found = dict(nodes)
    alike: dict[tuple[frozenset[tuple[str, int]], object], list[Holder]] = {}
    for slot in slots:
        alike.setdefault((frozenset(slot.units.items()), slot.accepts), []).append(slot.holder)
    for holders in alike.values():
        wanted = {holder: node for holder in holders if (node := nominated.get(PodUid(holder))) is not None}
        for holder, node in wanted.items():
            if found[holder] == node:
                continue
            # With whom it changes places must not be there as nominated itself.
            other = next((each for each in holders if found[each] == node and wanted.get(each) != node), None)
            if other is not None:
                found[holder], found[other] = node, found[holder]
    return found
