"""Ephemeral resources as a kind of ours: what is special to them.

What of them the ledger has is in `capacity`. The nodes that an object's nodeSpec means are chosen here, when its
status is judged. A choice is made once, and again where capacity, nodeSpec or numNodes have changed, or a chosen node
has left for good. It is made durable (status.nodes) before it is in force. One that finds no node is made again in each
full round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from extender.app.cache.cache import Cache
from extender.app.contracts.ports import EphemeralResource, MadeChoice, ResourceStatus
from extender.app.objects.kind import KindOfOurs, NotInForce, Status
from extender.app.objects.write_ids import digest_of
from extender.app.resources.capacity import Capacities
from extender.app.resources.node_selection import Domain, choose_again, is_same_choice, why_none
from extender.kube.names import NodeName


def _reconcile(resource: EphemeralResource, former: EphemeralResource | None) -> EphemeralResource | NotInForce:
    """The object, if it can be understood. Capacity that nobody can say more of is not kept."""
    return NotInForce("Invalid", resource.problem, keeps_former=False) if resource.problem else resource


KIND = KindOfOurs("EphemeralResource", _reconcile, holds_until_gone=True)
"""Until it is gone an object has its key, though on no node: another could not be told from it there."""


# -- what the status says ----------------------------------------------------------------------------------------


class Placements:
    """`conditions.Reports`: where each object is, or why it is nowhere."""

    def __init__(self, cache: Cache, capacities: Capacities) -> None:
        self._cache = cache
        self._capacities = capacities

    def judge(self, item: EphemeralResource) -> ResourceStatus | None:
        if item.problem:
            return ResourceStatus(False, "Invalid", item.problem)
        if rival := self._capacities.rival_of(item.name):
            taken = f"{self._capacities.key_of(item.name)} belongs to the older {rival}"
            return ResourceStatus(False, "NameTaken", f"{taken}; this one is in force when that is gone")
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
        """Choices that have found no node are made again; nodes that have left for good, or are back, are noticed."""
        return (
            (item.choice is not None and not item.chosen)
            or (said is not None and said.reason == "NodeGone")
            or not self._cache.nodes.keys() >= {**item.nodes, **(item.chosen or {})}.keys()
        )

    def _choose(self, resource: EphemeralResource) -> Sequence[NodeName]:
        """The nodes of the object's nodeSpec: those chosen before, as long as it asks for the same; else anew."""
        cache, having = self._cache, resource.chosen or {}
        if not resource.capacity or resource.choice is None:
            return ()
        if resource.choice.node is not None:
            name = resource.choice.node
            return [name] if name in cache.nodes or name in having else []
        before = resource.chosen_for
        if before is None and resource.observed_generation == resource.generation and having:
            # Chosen by an earlier version of us, which did not say for what.
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
    """Whether `chosen` was chosen for what is asked now."""
    before, choice = resource.chosen_for, resource.choice
    if before is None or choice is None:
        return before is None and choice is None
    return before.capacity == resource.capacity and is_same_choice(before.choice, choice)


def _who_left(left: Sequence[NodeName]) -> str:
    more = f" and {len(left) - 1} others have" if len(left) > 2 else f" and {left[1]} have" if len(left) > 1 else " has"
    return f"{'node' if len(left) == 1 else 'nodes'} {left[0]}{more} left the cluster"


# -- what an object asks for -------------------------------------------------------------------------------------


def is_as_marked(resource: EphemeralResource) -> bool:
    """Whether its spec is what the transaction wrote whose mark it bears."""
    return digest_of(resource.mark) == digest(resource)


def digest(resource: EphemeralResource) -> str:
    """The same for two specs if they ask for the same, and else, but for one chance in 2^48, another."""
    choice, ends = resource.choice, resource.expires_at
    asked = (
        sorted(resource.nodes.items()),
        resource.capacity,
        choice and (choice.node, _sorted(choice.available), _sorted(choice.labels), choice.limit),
        resource.owner and (resource.owner.name, resource.owner.uid),
        # As it comes back from the API server, to the microsecond.
        None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(),
    )
    # Marks of an earlier version of us knew no exports.
    more = (sorted(resource.exports),) if resource.exports else ()
    return hashlib.blake2b(repr((*asked, *more)).encode(), digest_size=6).hexdigest()


def _sorted(mapping: object) -> object:
    return sorted(mapping.items()) if isinstance(mapping, dict) else mapping


def is_same_state(one: EphemeralResource | None, other: EphemeralResource | None) -> bool:
    """Whether nobody has written the spec between the two: status, labels and the like may differ."""
    if one is None or other is None:
        return one is other
    return (one.mark, one.deleting, digest(one)) == (other.mark, other.deleting, digest(other))
