"""Reconciler: what is special to ephemeral resources as one of Escher's kinds.

`capacity` keeps what of them is in the ledger. This module chooses the nodes that an object's nodeSpec means, when its
status is judged. A choice is made once, and again if capacity, nodeSpec or numNodes change, or a chosen node has left
for good. It is stored (status.nodes) before it is in force. A choice that found no node is repeated in each full round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from extender.app.cache.cache import Cache
from extender.app.contracts.kind import KindOfOurs, NotInForce, Status
from extender.app.contracts.ports import EphemeralResource, MadeChoice, ResourceStatus
from extender.app.objects.write_ids import digest_of
from extender.app.resources.capacity import Capacities
from extender.app.resources.node_selection import Domain, choose_again, is_same_choice, why_none
from extender.kube.names import NodeName


def _reconcile(resource: EphemeralResource, former: EphemeralResource | None) -> EphemeralResource | NotInForce:
    """Returns the object if it can be understood. A `problem` also ends its former capacity."""
    return NotInForce("Invalid", resource.problem, keeps_former=False) if resource.problem else resource


KIND = KindOfOurs("EphemeralResource", _reconcile, holds_until_gone=True)
"""An object keeps its key until it is gone, even on no node: nodes cannot tell two apart."""


# -- what the status says ----------------------------------------------------------------------------------------


class Placements:
    """`conditions.Reports`: where each object is, or why it is on no node."""

    def __init__(self, cache: Cache, capacities: Capacities) -> None:
        self._cache = cache
        self._capacities = capacities

    def judge(self, item: EphemeralResource) -> ResourceStatus | None:
        if item.problem:
            return ResourceStatus(False, "Invalid", item.problem)
        if rival := self._capacities.rival_of(item.name):
            taken = f"{self._capacities.key_of(item.name)} belongs to the older {rival}"
            return ResourceStatus(False, "NameTaken", f"{taken}; this one comes into force when that is gone")
        chosen = item.chosen
        why = ""
        if item.choice is not None:
            nodes = self._choose(item)
            chosen = dict.fromkeys(nodes, item.capacity or 0)
            if not nodes and item.capacity:
                why = why_none(item.choice, self._cache.nodes, self._cache.ledger, self._domain(item))
                if not (item.chosen and _is_as_asked(item)):
                    return ResourceStatus(False, "NoNode", why, {})
                chosen = dict(item.chosen)
        if (withheld := self._capacities.withheld(item.name)) is not None:
            return ResourceStatus(False, withheld.reason, f"{withheld.said}; {withheld.until}", chosen)
        units = {node: number for node, number in {**(chosen or {}), **item.nodes}.items() if number}
        if left := sorted(node for node in units if self._cache.has_left(node)):
            return ResourceStatus(False, "NodeGone", _who_left(left) + (f"; {why}" if why else ""), chosen)
        return ResourceStatus(True, "Set", f"{sum(units.values())} units on {len(units)} nodes", chosen)

    def is_as_said(self, item: EphemeralResource, status: ResourceStatus) -> bool:
        return status.chosen == item.chosen and (not status.chosen or _is_as_asked(item))

    def can_wait(self, item: EphemeralResource) -> bool:
        return item.choice is None

    def may_differ(self, item: EphemeralResource, said: Status | None) -> bool:
        """Returns whether a choice found no node, or a node has left for good, or is back."""
        return (
            (item.choice is not None and not item.chosen)
            or (said is not None and said.reason == "NodeGone")
            or not self._cache.nodes.keys() >= {**item.nodes, **(item.chosen or {})}.keys()
        )

    def _choose(self, resource: EphemeralResource) -> Sequence[NodeName]:
        """Returns the nodes of the nodeSpec: the former ones while it asks for the same."""
        cache, having = self._cache, resource.chosen or {}
        if not resource.capacity or resource.choice is None:
            return ()
        if resource.choice.node is not None:
            name = resource.choice.node
            return [name] if name in cache.nodes or name in having else []
        before = resource.chosen_for
        if before is None and resource.observed_generation == resource.generation and having:
            # Chosen by an earlier version of Escher, which did not store for what.
            before = MadeChoice(resource.capacity, resource.choice)
        before = None if before is None or not having else replace(before, nodes=tuple(having))
        wanted = MadeChoice(resource.capacity, resource.choice)
        nodes, _ = choose_again(
            wanted, before, having, cache.nodes, cache.ledger, cache.has_left, self._domain(resource)
        )
        return nodes

    def _domain(self, resource: EphemeralResource) -> Domain:
        return self._cache.isolation.of(resource.name.namespace).has_node


def _is_as_asked(resource: EphemeralResource) -> bool:
    """Returns whether `chosen` was chosen for what is asked now."""
    before, choice = resource.chosen_for, resource.choice
    if before is None or choice is None:
        return before is None and choice is None
    return before.capacity == resource.capacity and is_same_choice(before.choice, choice)


def _who_left(left: Sequence[NodeName]) -> str:
    more = f" and {len(left) - 1} others have" if len(left) > 2 else f" and {left[1]} have" if len(left) > 1 else " has"
    return f"{'node' if len(left) == 1 else 'nodes'} {left[0]}{more} left the cluster"


# -- what an object asks for -------------------------------------------------------------------------------------


def is_as_marked(resource: EphemeralResource) -> bool:
    """Returns whether its spec is what the transaction wrote that left its mark."""
    return digest_of(resource.mark) == digest(resource)


def digest(resource: EphemeralResource) -> str:
    """Returns a digest: equal for equal requests, else different but for one chance in 2^48."""
    choice, ends = resource.choice, resource.expires_at
    asked = (
        sorted(resource.nodes.items()),
        resource.capacity,
        choice and (choice.node, _sorted(choice.available), _sorted(choice.labels), choice.limit),
        resource.owner and (resource.owner.name, resource.owner.uid),
        # Expiry as it comes back from the API server, to the microsecond.
        None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(),
    )
    # Marks of earlier versions of Escher had no exports.
    more = (sorted(resource.exports),) if resource.exports else ()
    return hashlib.blake2b(repr((*asked, *more)).encode(), digest_size=6).hexdigest()


def _sorted(mapping: object) -> object:
    return sorted(mapping.items()) if isinstance(mapping, dict) else mapping


def is_same_state(one: EphemeralResource | None, other: EphemeralResource | None) -> bool:
    """Returns whether no write changed the spec between the two; status and labels may differ."""
    if one is None or other is None:
        return one is other
    return (one.mark, one.deleting, digest(one)) == (other.mark, other.deleting, digest(other))
