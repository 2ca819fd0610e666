"""Ledger: capacity of every node for every resource, and the holders of that capacity.

It covers ephemeral resources, cpu, memory, pods and other extended resources, because a gang is planned on all of them.
The ledger is authoritative for intent: reservations, assumptions, ephemeral capacity. Its caller reports facts to it:
nodes and bound pods.

A holder's units on a node, by kind:

                 reserve                 assume               confirm
    (nothing) ------------> RESERVATION ---------> ASSUMPTION ---------> BOUND
        ^                        |                     |                   |
        |     release, expire    |    forget, expire   |      forget       |
        +------------------------+---------------------+-------------------+

A RESERVATION is held for a slot of an owner before the slot's pod is known or placed. An ASSUMPTION is held for a pod
on a node until the pod is seen bound. Both have a deadline, except while a Binding is being written. A SAVING reserves
all or a part of what a slot will need, before there is room for all slots of the owner. BOUND is a fact. Only facts may
exceed capacity: a bound pod and a lowered capacity are accepted as they are. No claim replaces a fact and no
transaction releases one. A late call from a component that has not yet seen the fact therefore has no effect.

`audit` recomputes every running total. No code iterates over a set, so that decisions never depend on hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from extender.core.ledger.capacity import Capacity
from extender.core.ledger.holdings import (
    Cause,
    Commit,
    Conflict,
    Detection,
    Holder,
    Holding,
    HoldingKind,
    Mode,
    Settled,
    Stale,
    require_claim,
    require_units,
)
from extender.core.ledger.node_arrays import NodeArrays
from extender.core.ledger.node_rows import Changes, NodeRows, Row, RowCopy, Totals
from extender.core.ledger.transaction import decide
from extender.core.names import DOMAIN, GangKey
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector

__all__ = [
    "Cause",
    "Commit",
    "Conflict",
    "Detection",
    "Holder",
    "Holding",
    "HoldingKind",
    "Ledger",
    "Mode",
    "Row",
    "RowCopy",
    "Settled",
    "Stale",
]


class Ledger:
    """Holdings of all nodes. It has one owner and no locks, see app/cycle/scheduler.

    `rows`: capacity and holdings, to read. `capacity`: what nodes can hold, to change. `changes`: the nodes that
    changed. `totals`: running sums. `columns`: free units as arrays. `domain`: of the resources that applications
    set."""

    def __init__(self, domain: str = DOMAIN) -> None:
        self.rows = NodeRows()
        self.totals = Totals()
        self.changes = Changes()
        self.capacity = Capacity(domain, self.rows, self.totals, self.changes)
        self.columns = NodeArrays(self.rows, self.changes)
        self._where: dict[str, NodeName] = {}
        self._expiry = _Expiry()
        self._owned: dict[GangKey, dict[Holder, Holding]] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def holding(self, holder: Holder | PodUid) -> Holding | None:
        node = self._where.get(holder)
        return None if node is None else self.rows[node].holdings[Holder(holder)]

    def held_for(self, owner: GangKey) -> list[Holding]:
        """Returns all holdings of the owner, of every kind, in the order of their insertion."""
        return list(self._owned.get(owner, {}).values())

    def first_held_for(self, owner: GangKey, but: HoldingKind) -> Holding | None:
        """Returns the owner's oldest holder whose holding is not of kind `but`, or None."""
        return next((held for held in self._owned.get(owner, {}).values() if held.kind is not but), None)

    # -- holdings ------------------------------------------------------------------------------------------------

    def reserve(self, slot: Holder, *, on: NodeName, units: Vector, owner: GangKey, until: float) -> None:
        """The slot's units are held on the node for `owner`. Raises Conflict."""
        self._commit_one(Holding(slot, on, units, HoldingKind.RESERVATION, owner, until))

    def assume(
        self, uid: PodUid, *, on: NodeName, units: Vector, until: float | None, owner: GangKey | None = None
    ) -> None:
        """The pod's units are held on the node, in place of its former holding. Raises Conflict."""
        self._commit_one(Holding(Holder(uid), on, units, HoldingKind.ASSUMPTION, owner, until))

    def confirm(self, uid: PodUid, *, on: NodeName, units: Vector, owner: GangKey | None = None) -> None:
        """The pod is recorded as bound, whether or not it fits. A repeated call changes nothing.

        `owner`: the gang that the units count for; None keeps the former owner."""
        before = self.holding(uid)
        owner = before.owner if owner is None and before is not None else owner
        fact = Holding(Holder(uid), on, units, HoldingKind.BOUND, owner)
        if before == fact:
            return
        require_units(fact)
        if before is None:
            self._insert(fact)
            return
        # A fact is no claim: if node and units are unchanged, copies of the row do not become stale.
        self._remove(before)
        self._insert(fact, claim=before.node != on or before.units != units)
        staying = units if before.node == on else {}
        if any(number > staying.get(resource, 0) for resource, number in before.units.items()):
            self._gained(before.node)
        self.rows.drop_if_empty(before.node)

    def release(self, holder: Holder | PodUid) -> Holding | None:
        """The holder holds nothing. Returns its former holding, or None."""
        holding = self.holding(holder)
        if holding is None:
            return None
        self._remove(holding)
        if any(holding.units.values()) or holding.kind is HoldingKind.SAVING:
            self._gained(holding.node)
        self.rows.drop_if_empty(holding.node)
        return holding

    def resume(self, holding: Holding) -> None:
        """The holding is restored as another ledger had it, whether or not it fits."""
        require_units(holding)
        if (before := self.holding(holding.holder)) is not None:
            self._remove(before)
        self._insert(holding)
        if before is not None:
            self.rows.drop_if_empty(before.node)

    def forget(self, uid: PodUid) -> Holding | None:
        """The pod holds nothing: it is gone, finished, or never placed. Inverse of `assume`."""
        return self.release(uid)

    def keep(self, holder: Holder | PodUid, until: float | None) -> None:
        """The holding's deadline is `until`; None while a Binding is being written.

        It has no effect on a fact, or if the holder holds nothing. Raises ValueError for a reservation without a
        deadline."""
        before = self.holding(holder)
        if before is not None and before.kind is not HoldingKind.BOUND:
            after = replace(before, until=until)
            require_claim(after)
            self.rows[after.node].holdings[after.holder] = after
            if after.owner is not None:
                self._owned[after.owner][after.holder] = after
            self._expiry.set(after.holder, until)

    def expire(self, now: float, stays: Callable[[Holding], float] = lambda holding: 0.0) -> list[Holding]:
        """Releases and returns the holdings with a deadline at or before `now`, earliest first.

        Equal deadlines are ordered by holder. `stays` returns how many seconds longer a holding is kept; 0 releases
        it."""
        expired: list[Holding] = []
        while (first := self._expiry.first()) is not None and first[0] <= now:
            holding = self.holding(first[1])
            assert holding is not None
            if seconds := stays(holding):
                self.keep(holding.holder, now + seconds)
            else:
                self.release(holding.holder)
                expired.append(holding)
        return expired

    def next_deadline(self) -> float | None:
        """The earliest deadline of all holdings."""
        first = self._expiry.first()
        return None if first is None else first[0]

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
        """The claims are held as `mode` says; in all-or-nothing mode one conflict prevents all.

        A claim replaces its holder's former holding; a refused claim leaves it in place. `releasing`: holders that the
        same transaction releases, so that its claims may use their units. They are released if at least one claim is
        committed, even where their own claim is refused. Facts are neither replaced nor released. A claim equal to a
        fact is satisfied by it. `read`: the sequence numbers that the plan was made on, for sequence-number detection.

        Raises ValueError for a holder that claims twice and for malformed claims. O(claims x resources). Incremental
        mode adds one round for each time that a refused claim keeps units that other claims relied on."""
        given_up: dict[Holder, Holding] = {}
        for holder in releasing:
            if (held := self.holding(holder)) is not None and held.kind is not HoldingKind.BOUND:
                given_up[held.holder] = held
        former = {claim.holder: held for claim in claims if (held := self.holding(claim.holder)) is not None}
        decision = decide(self.rows, claims, former, given_up, mode, detection, read)
        for held in decision.leaving:
            self._remove(held)
        for claim in decision.entering:
            self._insert(claim)
        # A saving withholds more than units: a node without it counts as a gain even if no units became free.
        still = {claim.node for claim in decision.entering if claim.kind is HoldingKind.SAVING}
        saved = (held.node for held in decision.leaving if held.kind is HoldingKind.SAVING)
        for node in dict.fromkeys((*decision.freed, *(node for node in saved if node not in still))):
            self._gained(node)
        for held in decision.leaving:
            self.rows.drop_if_empty(held.node)
        return decision.outcome

    def _commit_one(self, claim: Holding) -> None:
        outcome = self.commit([claim])
        if outcome.conflicts:
            raise Conflict(*outcome.conflicts[0])

    # -- running totals and indexes: audit.py recomputes each --------------------------------------------------------

    def _insert(self, holding: Holding, *, claim: bool = True) -> None:
        row = self.rows.of(holding.node)
        self.changes.touched(holding.node)
        row.holdings[holding.holder] = holding
        self._where[holding.holder] = holding.node
        for resource, units in holding.units.items():
            if units:
                row.held[resource] = row.held.get(resource, 0) + units
        if claim:
            row.sequence = self.rows.next_sequence()
        if holding.owner is not None:
            self._owned.setdefault(holding.owner, {})[holding.holder] = holding
            self._count_place(holding, +1)
        if holding.kind is not HoldingKind.BOUND:
            self._count_unbound(holding, row, +1)
            self._expiry.set(holding.holder, holding.until)

    def _remove(self, holding: Holding) -> None:
        row = self.rows[holding.node]
        self.changes.touched(holding.node)
        del row.holdings[holding.holder]
        del self._where[holding.holder]
        self._expiry.set(holding.holder, None)
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
            self._count_place(holding, -1)
        if holding.kind is not HoldingKind.BOUND:
            self._count_unbound(holding, row, -1)

    def _count_place(self, holding: Holding, change: int) -> None:
        if holding.owner is not None and holding.kind is not HoldingKind.SAVING:
            self.totals.count_place(holding.owner.namespace, change)

    def _count_unbound(self, holding: Holding, row: Row, change: int) -> None:
        row.unbound += change
        self.changes.held(holding.node, holding.holder)
        self.totals.count_unbound(holding.node, row.unbound)
        if holding.kind is HoldingKind.SAVING:
            self.totals.count_saved(holding.units, change)

    def _gained(self, node: NodeName) -> None:
        # An absent node has no room to gain. When it returns, all of its room is a gain.
        if self.rows[node].present:
            self.changes.gained(node)


class _Expiry:
    """Deadlines of holders, the earliest first."""

    def __init__(self) -> None:
        self.until: dict[Holder, float] = {}
        self._heap: list[tuple[float, Holder]] = []
        """Deadlines as a heap; some entries are obsolete."""

    def set(self, holder: Holder, until: float | None) -> None:
        """The holder's deadline is `until`; None: it has none."""
        if until is None:
            self.until.pop(holder, None)
            return
        self.until[holder] = until
        if len(self._heap) > 64 + 4 * len(self.until):
            self._heap = [(when, who) for who, when in self.until.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (until, holder))

    def first(self) -> tuple[float, Holder] | None:
        """The earliest deadline and its holder; the first holder by name among equals."""
        heap = self._heap
        while heap and self.until.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None
