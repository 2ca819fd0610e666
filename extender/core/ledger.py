"""The ledger: nodes x resources, what each node can hold and who holds it.

It knows capacity and holdings of every resource: ephemeral ones, cpu, memory, pods and other extended resources too,
for a gang is planned on all of them. It is authoritative for intent (reservations, assumptions, ephemeral capacity),
and takes facts (nodes, bound pods) as it is told. It must not know why anybody holds anything, nor what time it is.

A holder's units on a node, by kind:

                 reserve                 assume               confirm
    (nothing) ------------> RESERVATION ---------> ASSUMPTION ---------> BOUND
        ^                        |                     |                   |
        |     release, expire    |    forget, expire   |      forget       |
        +------------------------+---------------------+-------------------+

A reservation is held for a slot of an owner before its pod is known or placed; an assumption for a pod on a node, not
yet seen bound; both have a deadline, unless a Binding is being written. A SAVING is a reservation of what a slot will
need, or of a part, before there is room for all slots of the owner. BOUND is a fact: it is taken in even if it
exceeds capacity, as is a lowered capacity; nothing else ever does. No claim replaces a fact, and no transaction gives
one up: a late call of somebody who has not heard of it changes nothing.

Every running total has a slow twin: see `audit`. Nothing iterates over a set, so that decisions never depend on hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from heapq import heapify, heappop, heappush

from extender.core import audit
from extender.core.audit import Violation
from extender.core.holdings import (
    Cause,
    Commit,
    Conflict,
    Detection,
    Holder,
    Holding,
    Kind,
    Mode,
    Settled,
    Stale,
    require_claim,
    require_units,
)
from extender.core.names import DOMAIN, GangKey, NodeName, PodUid, ResourceKey, in_domain
from extender.core.rows import Row, RowCopy, Snapshot, short_of_nothing
from extender.core.transaction import add_to, decide
from extender.core.units import Short, Vector

__all__ = [
    "Cause",
    "Commit",
    "Conflict",
    "Detection",
    "Holder",
    "Holding",
    "Kind",
    "Ledger",
    "Mode",
    "Row",
    "RowCopy",
    "Settled",
    "Snapshot",
    "Stale",
    "Violation",
]


class Ledger:
    """Capacity and holdings of all nodes. One owner, no locks: see app/keeper."""

    def __init__(self, domain: str = DOMAIN) -> None:
        self.domain = domain
        self.rows: dict[NodeName, Row] = {}
        self.unbound_on: dict[NodeName, int] = {}
        """How many reservations and assumptions a node carries; nodes with none are absent."""
        self.providers: dict[ResourceKey, dict[NodeName, None]] = {}
        """Nodes that are present and have capacity, for each ephemeral resource; oldest first."""
        self.gain_count = 0
        """Grows whenever some node may have gained room: an unchanged number means nothing that failed can succeed."""
        self.capacity_count = 0
        """Grows whenever what nodes can hold, or whom they accept, has changed."""
        self.capacity_total: dict[ResourceKey, int] = {}
        """What the nodes that are present can hold together, by resource."""
        self.saved_total: dict[ResourceKey, int] = {}
        """What all savings hold together, by resource."""
        self._gains: dict[NodeName, None] = {}
        self._changes: dict[NodeName, None] = {}
        self._capacity_changes: dict[NodeName, None] = {}
        self._where: dict[str, NodeName] = {}
        self._deadlines: dict[str, float] = {}
        self._by_deadline: list[tuple[float, str]] = []
        """A heap of the deadlines, and of some that are no more."""
        self._owned: dict[GangKey, dict[Holder, None]] = {}
        self._sequence = 0

    # -- reading -------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[NodeName]:
        """The nodes that are present."""
        return (name for name, row in self.rows.items() if row.present)

    def holding(self, holder: Holder | PodUid) -> Holding | None:
        """What the holder holds, or None."""
        node = self._where.get(holder)
        return None if node is None else self.rows[node].holdings[Holder(holder)]

    def holdings(self) -> Iterator[Holding]:
        return (holding for row in self.rows.values() for holding in row.holdings.values())

    def held_for(self, owner: GangKey) -> list[Holding]:
        """All holdings of the owner, of every kind, in the order in which they were taken."""
        return [self.rows[self._where[holder]].holdings[holder] for holder in self._owned.get(owner, ())]

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        """Capacity less holdings; below 0 after capacity was lowered under holders; 0 for what is not there."""
        row = self.rows.get(node)
        return 0 if row is None else row.capacity.get(resource, 0) - row.held.get(resource, 0)

    def short(self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()) -> Short | None:
        """Why `units` do not fit on the node, or None. `without`: holders whose units there are counted as free."""
        row = self.rows.get(node)
        if row is None:
            return short_of_nothing(units)
        leaving = [row.holdings[Holder(h)] for h in dict.fromkeys(without) if Holder(h) in row.holdings]
        if not leaving:
            return row.short(units)
        change: dict[ResourceKey, int] = {}
        for holding in leaving:
            add_to(change, holding.units)
        return row.short_with(units, change)

    def snapshot(self) -> Snapshot:
        """A private copy of all rows that are present. O(nodes x resources)."""
        return Snapshot(
            {
                name: RowCopy(dict(row.capacity), dict(row.held), row.sequence)
                for name, row in self.rows.items()
                if row.present
            }
        )

    # -- facts and capacity --------------------------------------------------------------------------------------

    def set_node(self, node: NodeName, allocatable: Vector) -> None:
        """The node is present with this allocatable. What it says about our own domain is ignored: see drift."""
        row = self._row(node)
        facts = {r: units for r, units in allocatable.items() if not in_domain(r, self.domain)}
        if row.present and row.facts == facts:
            return
        before = row.capacity
        row.facts = facts
        row.capacity = {**facts, **row.ephemeral}
        self._capacity_changed(node, before, row.capacity)
        if not row.present:
            row.present = True
            for resource in row.ephemeral:
                self.providers.setdefault(resource, {})[node] = None
        if any(units > before.get(resource, 0) for resource, units in row.capacity.items()):
            self._gained(node, row)

    def remove_node(self, node: NodeName) -> None:
        """The node is away. Its holdings and ephemeral capacity stay: its pods' deletions arrive on another watch."""
        row = self.rows.get(node)
        if row is None or not row.present:
            return
        row.present = False
        self._capacity_changed(node, row.capacity, {})
        row.facts = {}
        row.capacity = {}
        for resource in row.ephemeral:
            self._provides_no_more(node, resource)
        self._drop_if_empty(node)

    def set_capacity(self, node: NodeName, resource: ResourceKey, units: int) -> None:
        """The node has `units` of an ephemeral resource; 0 removes it. Holders are never touched: they may exceed it.

        Known nodes or not: capacity set beforehand is in force when the node comes. Raises ValueError.
        """
        if units < 0 or not in_domain(resource, self.domain):
            raise ValueError(f"capacity of {resource} on {node} cannot be set to {units}")
        row = self._row(node)
        before = row.ephemeral.get(resource, 0)
        if units:
            row.ephemeral[resource] = units
        else:
            row.ephemeral.pop(resource, None)
        there = row.present
        self._capacity_changed(node, {resource: before} if there else {}, {resource: units} if there else {})
        if row.present and units:
            row.capacity[resource] = units
            self.providers.setdefault(resource, {})[node] = None
            if units > before:
                self._gained(node, row)
        elif row.present and before:
            del row.capacity[resource]
            self._provides_no_more(node, resource)
        self._drop_if_empty(node)

    def _capacity_changed(self, node: NodeName, before: Vector, after: Vector) -> None:
        self._changes[node] = None
        self._capacity_changes[node] = None
        self.capacity_count += 1
        for resource in {**before, **after}:
            _count(self.capacity_total, resource, after.get(resource, 0) - before.get(resource, 0))

    def _provides_no_more(self, node: NodeName, resource: ResourceKey) -> None:
        nodes = self.providers[resource]
        del nodes[node]
        if not nodes:
            del self.providers[resource]

    def _row(self, node: NodeName) -> Row:
        row = self.rows.get(node)
        if row is None:
            row = self.rows[node] = Row(self._next_sequence())
        return row

    def _drop_if_empty(self, node: NodeName) -> None:
        row = self.rows.get(node)
        if row is not None and not (row.present or row.holdings or row.ephemeral):
            del self.rows[node]

    # -- holdings ------------------------------------------------------------------------------------------------

    def reserve(self, slot: Holder, *, on: NodeName, units: Vector, owner: GangKey, until: float) -> None:
        """The slot's units are held on the node for `owner`. Raises Conflict."""
        self._commit_one(Holding(slot, on, units, Kind.RESERVATION, owner, until))

    def assume(
        self, uid: PodUid, *, on: NodeName, units: Vector, until: float | None, owner: GangKey | None = None
    ) -> None:
        """The pod's units are held on the node, in place of what it held before. Raises Conflict."""
        self._commit_one(Holding(Holder(uid), on, units, Kind.ASSUMPTION, owner, until))

    def confirm(self, uid: PodUid, *, on: NodeName, units: Vector) -> None:
        """The pod is seen bound: a fact, counted whether or not it fits. Repeating it changes nothing."""
        before = self.holding(uid)
        fact = Holding(Holder(uid), on, units, Kind.BOUND, None if before is None else before.owner)
        if before == fact:
            return
        require_units(fact)
        if before is None:
            self._insert(fact)
            return
        # What is merely seen to have happened is no new claim: copies of the row do not become stale.
        self._remove(before)
        self._insert(fact, claim=before.node != on or before.units != units)
        staying = units if before.node == on else {}
        if any(number > staying.get(resource, 0) for resource, number in before.units.items()):
            self._gained(before.node, self.rows[before.node])
        self._drop_if_empty(before.node)

    def release(self, holder: Holder | PodUid) -> Holding | None:
        """The holder holds nothing. Answers what it held; None if nothing."""
        holding = self.holding(holder)
        if holding is None:
            return None
        self._remove(holding)
        if any(holding.units.values()):
            self._gained(holding.node, self.rows[holding.node])
        self._drop_if_empty(holding.node)
        return holding

    def forget(self, uid: PodUid) -> Holding | None:
        """The pod holds nothing: it is gone, finished, or was never placed. The pair of `assume`."""
        return self.release(uid)

    def keep(self, holder: Holder | PodUid, until: float | None) -> None:
        """The holding's deadline is `until`; None while a Binding is being written. Nothing if it holds nothing.

        Raises ValueError for a reservation without a deadline.
        """
        before = self.holding(holder)
        if before is not None and before.kind is not Kind.BOUND:
            after = replace(before, until=until)
            require_claim(after)
            self.rows[after.node].holdings[after.holder] = after
            self._set_deadline(after.holder, until)

    def expire(self, now: float) -> list[Holding]:
        """What had a deadline at or before `now` is released. Answers it, in order of deadline, then of holder."""
        expired: list[Holding] = []
        while (until := self.next_deadline()) is not None and until <= now:
            holding = self.release(Holder(self._by_deadline[0][1]))
            assert holding is not None
            expired.append(holding)
        return expired

    def next_deadline(self) -> float | None:
        """The earliest deadline of all holdings."""
        heap = self._by_deadline
        while heap and self._deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def reconsider(self, node: NodeName) -> None:
        """The node counts as having gained room: something beside its resources has changed in its favour."""
        if (row := self.rows.get(node)) is not None:
            self._gained(node, row)
            self._capacity_changed(node, {}, {})

    def drain_changes(self) -> AbstractSet[NodeName]:
        """The nodes of which anything has changed since the last call."""
        changes, self._changes = self._changes, {}
        return changes.keys()

    def drain_capacity_changes(self) -> AbstractSet[NodeName]:
        """The nodes of which capacity, or whom they accept, has changed since the last call."""
        changes, self._capacity_changes = self._capacity_changes, {}
        return changes.keys()

    @property
    def has_gains(self) -> bool:
        """Whether `drain_gains` has something to tell."""
        return bool(self._gains)

    def drain_gains(self) -> AbstractSet[NodeName]:
        """The nodes that may have gained room since the last call, in the order in which they did first."""
        gains, self._gains = self._gains, {}
        return gains.keys()

    # -- transactions --------------------------------------------------------------------------------------------

    def commit(
        self,
        claims: Sequence[Holding],
        *,
        mode: Mode = Mode.ALL_OR_NOTHING,
        detection: Detection = Detection.RESOURCE_FIT,
        read: Mapping[NodeName, int] | None = None,
        releasing: Iterable[Holder | PodUid] = (),
    ) -> Commit:
        """The claims hold, as `mode` says; all-or-nothing leaves the ledger unchanged if one conflicts.

        A claim replaces what its holder held before; one that is refused leaves that in place. `releasing`: holders
        given up by the same transaction, whose units its claims may use; they are released if something is committed,
        also where a claim of their own is refused. Facts are neither replaced nor given up; a claim that says the same
        as one is met by it. `read`: the sequence numbers that the plan was made on, for sequence-number detection.

        Raises ValueError for a holder that claims twice and for claims that are not well formed. O(claims x resources);
        in incremental mode once more for each round in which a refused claim keeps units that others counted on.
        """
        given_up: dict[Holder, Holding] = {}
        for holder in releasing:
            if (held := self.holding(holder)) is not None and held.kind is not Kind.BOUND:
                given_up[held.holder] = held
        former = {claim.holder: held for claim in claims if (held := self.holding(claim.holder)) is not None}
        decision = decide(self.rows, claims, former, given_up, mode, detection, read)
        for held in decision.leaving:
            self._remove(held)
        for claim in decision.entering:
            self._insert(claim)
        for node in decision.freed:
            self._gained(node, self.rows[node])
        for held in decision.leaving:
            self._drop_if_empty(held.node)
        return decision.outcome

    def _commit_one(self, claim: Holding) -> None:
        outcome = self.commit([claim])
        if outcome.conflicts:
            raise Conflict(*outcome.conflicts[0])

    # -- running totals and indexes: each with a slow twin in audit.py --------------------------------------------

    def _insert(self, holding: Holding, *, claim: bool = True) -> None:
        row = self._row(holding.node)
        self._changes[holding.node] = None
        row.holdings[holding.holder] = holding
        self._where[holding.holder] = holding.node
        for resource, units in holding.units.items():
            if units:
                row.held[resource] = row.held.get(resource, 0) + units
        if claim:
            row.sequence = self._next_sequence()
        if holding.owner is not None:
            self._owned.setdefault(holding.owner, {})[holding.holder] = None
        if holding.kind is not Kind.BOUND:
            self._count_unbound(holding, row, +1)
            self._set_deadline(holding.holder, holding.until)

    def _remove(self, holding: Holding) -> None:
        row = self.rows[holding.node]
        self._changes[holding.node] = None
        del row.holdings[holding.holder]
        del self._where[holding.holder]
        self._deadlines.pop(holding.holder, None)
        for resource, units in holding.units.items():
            if units:
                left = row.held[resource] - units
                if left:
                    row.held[resource] = left
                else:
                    del row.held[resource]
        if holding.owner is not None:
            holders = self._owned[holding.owner]
            del holders[holding.holder]
            if not holders:
                del self._owned[holding.owner]
        if holding.kind is not Kind.BOUND:
            self._count_unbound(holding, row, -1)

    def _set_deadline(self, holder: Holder, until: float | None) -> None:
        if until is None:
            self._deadlines.pop(holder, None)
        else:
            self._deadlines[holder] = until
            if len(self._by_deadline) > 64 + 4 * len(self._deadlines):
                self._by_deadline = [(when, who) for who, when in self._deadlines.items()]
                heapify(self._by_deadline)
            else:
                heappush(self._by_deadline, (until, holder))

    def _count_unbound(self, holding: Holding, row: Row, change: int) -> None:
        row.unbound += change
        if row.unbound:
            self.unbound_on[holding.node] = row.unbound
        else:
            self.unbound_on.pop(holding.node, None)
        if holding.kind is Kind.SAVING:
            for resource, units in holding.units.items():
                _count(self.saved_total, resource, change * units)

    def _gained(self, node: NodeName, row: Row) -> None:
        # A node that is away has no room to gain; when it returns, it gains all of it.
        if row.present:
            self._gains[node] = None
            self.gain_count += 1

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def recount(self) -> dict[NodeName, dict[ResourceKey, int]]:
        """What is held, recomputed from the holdings."""
        return audit.recount(self)

    def violations(self) -> list[Violation]:
        """Every invariant of the ledger that does not hold now. O(everything)."""
        return audit.violations(self)


def _count(totals: dict[ResourceKey, int], resource: ResourceKey, units: int) -> None:
    """So many more; what comes to 0 is left out."""
    total = totals.get(resource, 0) + units
    if total:
        totals[resource] = total
    else:
        totals.pop(resource, None)
