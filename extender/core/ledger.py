"""The ledger: nodes x resources, what each node can hold and who holds it.

It knows capacity and holdings of every resource: ephemeral ones, cpu, memory, pods and other extended resources too, for
a gang is planned on all of them. It is authoritative for intent (reservations, assumptions, ephemeral capacity), and takes
facts (nodes, bound pods) as it is told. It must not know why anybody holds anything, nor what time it is.

A holder's units on a node, by kind:

                 reserve                 assume               confirm
    (nothing) ------------> RESERVATION ---------> ASSUMPTION ---------> BOUND
        ^                        |                     |                   |
        |     release, expire    |    forget, expire   |      forget       |
        +------------------------+---------------------+-------------------+

A reservation is held for a slot of an owner before its pod is known or placed; an assumption for a pod on a node, not yet
seen bound; both have a deadline, unless a Binding is being written. BOUND is a fact: it is taken in even if it exceeds capacity,
as is a lowered capacity; nothing else ever does.

Every running total has a slow twin (`recount`), and `violations` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NewType

from extender.core.names import DOMAIN, GangKey, NodeName, PodUid, ResourceKey, in_domain
from extender.core.units import Short, Vector, add

Holder = NewType("Holder", str)
"""Who holds units: a pod's UID, or a slot of a gang's plan."""


class Kind(Enum):
    RESERVATION = "reservation"
    ASSUMPTION = "assumption"
    BOUND = "bound"


class Mode(Enum):
    """Which claims of a transaction survive a conflict (Konwinski 2012, chapter 6)."""

    ALL_OR_NOTHING = "all-or-nothing"
    INCREMENTAL = "incremental"


class Detection(Enum):
    """What counts as a conflict: too little free now, or any claim on the row since it was read."""

    RESOURCE_FIT = "resource-fit"
    SEQUENCE_NUMBER = "sequence-number"


@dataclass(frozen=True, slots=True)
class Holding:
    """Units held by one holder on one node. `until` is None where no deadline applies."""

    holder: Holder
    node: NodeName
    units: Vector
    kind: Kind
    owner: GangKey | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """A row that somebody claimed on after it was read."""

    node: NodeName
    read: int
    now: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What became of a transaction: the claims that hold now, and for each that does not, why."""

    committed: tuple[Holding, ...] = ()
    conflicts: tuple[tuple[Holding, Short | Stale], ...] = ()


class Conflict(Exception):
    """A single claim that was refused; the ledger is unchanged."""

    def __init__(self, claim: Holding, cause: Short | Stale) -> None:
        super().__init__(f"{claim.holder} on {claim.node}: {cause}")
        self.claim = claim
        self.cause = cause


@dataclass(slots=True)
class Row:
    """One node. `capacity` is what may be held, `held` the running total of `holdings`, `sequence` the number of claims."""

    facts: dict[ResourceKey, int] = field(default_factory=dict)
    """Allocatable of the resources that are not ours, as the node states it."""
    ephemeral: dict[ResourceKey, int] = field(default_factory=dict)
    """Capacity of ours, as applications set it. Kept while the node is away, and in force when it returns."""
    capacity: dict[ResourceKey, int] = field(default_factory=dict)
    held: dict[ResourceKey, int] = field(default_factory=dict)
    holdings: dict[Holder, Holding] = field(default_factory=dict)
    unbound: int = 0
    """How many holdings are reservations or assumptions."""
    sequence: int = 0
    present: bool = False

    def short(self, units: Vector) -> Short | None:
        """The first resource of which less is free than `units` asks, or None."""
        capacity, held = self.capacity, self.held
        for resource, asked in units.items():
            free = capacity.get(resource, 0) - held.get(resource, 0)
            if asked > free and asked > 0:
                return Short(resource, asked, free)
        return None


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A private copy of a row, to plan on (Omega's replicated state)."""

    capacity: Mapping[ResourceKey, int]
    held: Mapping[ResourceKey, int]
    sequence: int

    def free(self, resource: ResourceKey) -> int:
        return self.capacity.get(resource, 0) - self.held.get(resource, 0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ledger as it was: what may be read at leisure, and committed against later by its sequence numbers."""

    rows: Mapping[NodeName, RowCopy]

    @property
    def sequences(self) -> dict[NodeName, int]:
        return {name: row.sequence for name, row in self.rows.items()}


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold. `invariant` is from a fixed list, `detail` is for people."""

    invariant: str
    detail: str


class Ledger:
    """Capacity and holdings of all nodes. One owner, no locks: see app/keeper."""

    def __init__(self, domain: str = DOMAIN) -> None:
        self.domain = domain
        self.rows: dict[NodeName, Row] = {}
        self.unbound_on: dict[NodeName, int] = {}
        """How many reservations and assumptions a node carries; nodes with none are absent."""
        self.providers: dict[ResourceKey, set[NodeName]] = {}
        """Nodes that are present and have capacity, for each ephemeral resource."""
        self._where: dict[Holder, NodeName] = {}
        self._deadlines: dict[Holder, float] = {}
        self._gains: set[NodeName] = set()
        self.gain_count = 0
        """Grows whenever some node may have gained room: an unchanged number means nothing that failed can succeed."""

    # -- reading -------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[NodeName]:
        """The nodes that are present."""
        return (name for name, row in self.rows.items() if row.present)

    def holding(self, holder: Holder | PodUid) -> Holding | None:
        """What the holder holds, or None."""
        node = self._where.get(Holder(holder))
        return None if node is None else self.rows[node].holdings[Holder(holder)]

    def holdings(self) -> Iterator[Holding]:
        return (holding for row in self.rows.values() for holding in row.holdings.values())

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        """Capacity less holdings; below 0 after capacity was lowered under holders; 0 for what is not there."""
        row = self.rows.get(node)
        return 0 if row is None else row.capacity.get(resource, 0) - row.held.get(resource, 0)

    def short(self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()) -> Short | None:
        """Why `units` do not fit on the node, or None. `without`: holders whose units there are counted as free."""
        row = self.rows.get(node)
        if row is None:
            return next((Short(resource, asked, 0) for resource, asked in units.items() if asked > 0), None)
        returned = [row.holdings[Holder(h)].units for h in without if Holder(h) in row.holdings]
        if not returned:
            return row.short(units)
        extra = add(returned)
        for resource, asked in units.items():
            free = row.capacity.get(resource, 0) - row.held.get(resource, 0) + extra.get(resource, 0)
            if asked > free and asked > 0:
                return Short(resource, asked, free)
        return None

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
        row = self.rows.setdefault(node, Row())
        before = row.capacity if row.present else {}
        row.present = True
        row.facts = {r: units for r, units in allocatable.items() if not in_domain(r, self.domain)}
        self._recompute(node, row, before)

    def remove_node(self, node: NodeName) -> None:
        """The node is away. Its holdings and ephemeral capacity stay: pod deletions arrive on another watch, perhaps later."""
        row = self.rows.get(node)
        if row is None:
            return
        before = row.capacity
        row.present = False
        row.facts = {}
        self._recompute(node, row, before)
        self._drop_if_empty(node, row)

    def set_capacity(self, node: NodeName, resource: ResourceKey, units: int) -> None:
        """The node has `units` of an ephemeral resource; 0 removes it. Holders are never touched: they may exceed it."""
        if units < 0 or not in_domain(resource, self.domain):
            raise ValueError(f"capacity of {resource} on {node} cannot be set to {units}")
        row = self.rows.setdefault(node, Row())
        before = row.capacity
        if units:
            row.ephemeral[resource] = units
        else:
            row.ephemeral.pop(resource, None)
        self._recompute(node, row, before)
        self._drop_if_empty(node, row)

    def _recompute(self, node: NodeName, row: Row, before: Mapping[ResourceKey, int]) -> None:
        row.capacity = {**row.facts, **row.ephemeral} if row.present else {}
        for resource in row.ephemeral.keys() | {r for r in before if in_domain(r, self.domain)}:
            if resource in row.capacity:
                self.providers.setdefault(resource, set()).add(node)
            elif nodes := self.providers.get(resource):
                nodes.discard(node)
                if not nodes:
                    del self.providers[resource]
        if any(units > before.get(resource, 0) for resource, units in row.capacity.items()):
            self._gained(node)

    def _drop_if_empty(self, node: NodeName, row: Row) -> None:
        if not row.present and not row.holdings and not row.ephemeral:
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
        if before is not None and before.kind is Kind.BOUND and before.node == on and before.units == units:
            return
        owner = before.owner if before is not None else None
        self._replace(Holding(Holder(uid), on, units, Kind.BOUND, owner))

    def release(self, holder: Holder | PodUid) -> Holding | None:
        """The holder holds nothing. Answers what it held; None if nothing."""
        node = self._where.pop(Holder(holder), None)
        if node is None:
            return None
        row = self.rows[node]
        holding = row.holdings.pop(Holder(holder))
        self._deadlines.pop(Holder(holder), None)
        for resource, units in holding.units.items():
            left = row.held[resource] - units
            if left:
                row.held[resource] = left
            else:
                del row.held[resource]
        if holding.kind is not Kind.BOUND:
            self._count_unbound(node, row, -1)
        self._gained(node)
        self._drop_if_empty(node, row)
        return holding

    def forget(self, uid: PodUid) -> Holding | None:
        """The pod holds nothing: it is gone, finished, or was never placed. The pair of `assume`."""
        return self.release(uid)

    def keep(self, holder: Holder | PodUid, until: float | None) -> None:
        """The holding's deadline is `until`; None while a Binding is being written. Nothing if it holds nothing."""
        holding = self.holding(holder)
        if holding is not None and holding.kind is not Kind.BOUND:
            self.rows[holding.node].holdings[holding.holder] = replace(holding, until=until)
            self._set_deadline(holding.holder, until)

    def expire(self, now: float) -> list[Holding]:
        """What had a deadline at or before `now` is released. Answers it, in order of deadline."""
        due = sorted((until, holder) for holder, until in self._deadlines.items() if until <= now)
        return [holding for _, holder in due if (holding := self.release(holder)) is not None]

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)

    def drain_gains(self) -> set[NodeName]:
        """The nodes that may have gained room since the last call."""
        gains, self._gains = self._gains, set()
        return gains

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

        A claim replaces what its holder held before. `releasing`: holders given up by the same transaction, whose units
        its claims may use; they are released only if something is committed. `read`: the sequence numbers that the plan was
        made on, needed for sequence-number detection. O(claims x resources).
        """
        giving_up = dict.fromkeys([*(Holder(h) for h in releasing), *(claim.holder for claim in claims)])
        returned: dict[NodeName, dict[ResourceKey, int]] = {}
        for holder in giving_up:
            if (held := self.holding(holder)) is not None:
                returned[held.node] = add([returned.get(held.node, {}), held.units])
        kept: list[Holding] = []
        conflicts: list[tuple[Holding, Short | Stale]] = []
        taken: dict[NodeName, dict[ResourceKey, int]] = {}
        for claim in claims:
            cause = self._conflict(claim, detection, read, returned.get(claim.node, {}), taken.get(claim.node, {}))
            if cause is None:
                kept.append(claim)
                taken[claim.node] = add([taken.get(claim.node, {}), claim.units])
            else:
                conflicts.append((claim, cause))
        if not kept or (conflicts and mode is Mode.ALL_OR_NOTHING):
            return Commit((), tuple(conflicts))
        refused = {claim.holder for claim, _ in conflicts}
        for holder in giving_up:
            if holder not in refused:
                self.release(holder)
        for claim in kept:
            self._insert(claim)
        return Commit(tuple(kept), tuple(conflicts))

    def _conflict(
        self,
        claim: Holding,
        detection: Detection,
        read: Mapping[NodeName, int] | None,
        returned: Mapping[ResourceKey, int],
        taken: Mapping[ResourceKey, int],
    ) -> Short | Stale | None:
        row = self.rows.get(claim.node)
        if detection is Detection.SEQUENCE_NUMBER:
            seen = (read or {}).get(claim.node, -1)
            sequence = row.sequence if row is not None else 0
            if seen != sequence:
                return Stale(claim.node, seen, sequence)
        for resource, asked in claim.units.items():
            free = 0 if row is None else row.capacity.get(resource, 0) - row.held.get(resource, 0)
            free += returned.get(resource, 0) - taken.get(resource, 0)
            if asked > free and asked > 0:
                return Short(resource, asked, free)
        return None

    def _commit_one(self, claim: Holding) -> None:
        outcome = self.commit([claim])
        if outcome.conflicts:
            raise Conflict(*outcome.conflicts[0])

    def _replace(self, holding: Holding) -> None:
        self.release(holding.holder)
        self._insert(holding)

    def _insert(self, holding: Holding) -> None:
        row = self.rows.setdefault(holding.node, Row())
        row.holdings[holding.holder] = holding
        self._where[holding.holder] = holding.node
        for resource, units in holding.units.items():
            if units:
                row.held[resource] = row.held.get(resource, 0) + units
        row.sequence += 1
        if holding.kind is not Kind.BOUND:
            self._count_unbound(holding.node, row, +1)
            self._set_deadline(holding.holder, holding.until)

    def _set_deadline(self, holder: Holder, until: float | None) -> None:
        if until is None:
            self._deadlines.pop(holder, None)
        else:
            self._deadlines[holder] = until

    def _count_unbound(self, node: NodeName, row: Row, change: int) -> None:
        row.unbound += change
        if row.unbound:
            self.unbound_on[node] = row.unbound
        else:
            self.unbound_on.pop(node, None)

    def _gained(self, node: NodeName) -> None:
        self._gains.add(node)
        self.gain_count += 1

    # -- the slow twin -------------------------------------------------------------------------------------------

    def recount(self) -> dict[NodeName, dict[ResourceKey, int]]:
        """What is held, recomputed from the holdings: the slow twin of `Row.held`."""
        return {
            name: {r: u for r, u in add(h.units for h in row.holdings.values()).items() if u}
            for name, row in self.rows.items()
        }

    def violations(self) -> list[Violation]:
        """Every invariant of the ledger that does not hold now. O(everything): for tests, and now and then at run time."""
        found: list[Violation] = []
        for name, held in self.recount().items():
            row = self.rows[name]
            if held != row.held:
                found.append(Violation("ledger_totals", f"{name}: total {row.held}, holdings sum to {held}"))
            if row.unbound != sum(h.kind is not Kind.BOUND for h in row.holdings.values()):
                found.append(Violation("ledger_totals", f"{name}: {row.unbound} unbound counted"))
        where = {h.holder: h.node for h in self.holdings()}
        if where != self._where:
            found.append(Violation("ledger_index", "the index of holders differs from the holdings"))
        unbound = {name: row.unbound for name, row in self.rows.items() if row.unbound}
        if unbound != self.unbound_on:
            found.append(Violation("ledger_index", "the index of unbound holdings differs from the rows"))
        deadlines = {h.holder: h.until for h in self.holdings() if h.until is not None}
        if deadlines != self._deadlines:
            found.append(Violation("ledger_index", "the index of deadlines differs from the holdings"))
        providers: dict[ResourceKey, set[NodeName]] = {}
        for name, row in self.rows.items():
            for resource in row.ephemeral if row.present else ():
                providers.setdefault(resource, set()).add(name)
        if providers != self.providers:
            found.append(Violation("ledger_index", "the index of providers differs from the rows"))
        found += [
            Violation("reservation_without_owner_or_deadline", f"{h.holder} on {h.node}")
            for h in self.holdings()
            if h.kind is Kind.RESERVATION and (h.owner is None or h.until is None)
        ]
        return found
