"""Rows: the nodes of the ledger, each with what it can hold and who holds it; sums over all, and what has changed.

Reading is here, writing is `ledger`'s and `capacity`'s. Must not know why anybody holds anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from extender.core.fit import lacking
from extender.core.holdings import Holder, Holding
from extender.core.units import Short, add_to, count_in
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector


@dataclass(slots=True)
class Row:
    """One node. `capacity` is what may be held, `held` the running total of `holdings`."""

    sequence: int
    """Another after each claim; never the same again in the life of a ledger, even if the node leaves and returns."""
    facts: dict[ResourceKey, int] = field(default_factory=dict)
    """Allocatable of the resources that are not ours, as the node states it."""
    ephemeral: dict[ResourceKey, int] = field(default_factory=dict)
    """Capacity of ours, as applications set it. Kept while the node is away, and in force when it returns."""
    capacity: dict[ResourceKey, int] = field(default_factory=dict)
    held: dict[ResourceKey, int] = field(default_factory=dict)
    holdings: dict[Holder, Holding] = field(default_factory=dict)
    unbound: int = 0
    """How many holdings are reservations or assumptions."""
    present: bool = False

    def short(self, units: Vector, change: Vector | None = None) -> Short | None:
        """The first resource of which less is free than `units` asks, or None. `change`: so much more of each is."""
        found = lacking(self.capacity, self.held, units.items(), change)
        return None if found is None else Short(*found)


NOWHERE = Row(0)
"""What there is on a node that is not there."""


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A private copy of a row, to plan on (Omega's replicated state)."""

    capacity: Mapping[ResourceKey, int]
    held: Mapping[ResourceKey, int]
    sequence: int


class NodeRows(dict[NodeName, Row]):
    """By node, also those that are away and that somebody holds something on, or has set capacity for."""

    def __init__(self) -> None:
        super().__init__()
        self._sequence = 0

    def of(self, node: NodeName) -> Row:
        """The node's row, from now on at the latest."""
        row = self.get(node)
        if row is None:
            row = self[node] = Row(self.next_sequence())
        return row

    def next_sequence(self) -> int:
        """Another number than ever before."""
        self._sequence += 1
        return self._sequence

    def drop_if_empty(self, node: NodeName) -> None:
        """A row that says nothing is no more."""
        row = self.get(node)
        if row is not None and not (row.present or row.holdings or row.ephemeral):
            del self[node]

    # -- reading -------------------------------------------------------------------------------------------------

    def present(self) -> Iterator[NodeName]:
        """The nodes that are there."""
        return (name for name, row in self.items() if row.present)

    def holdings(self) -> Iterator[Holding]:
        return (holding for row in self.values() for holding in row.holdings.values())

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        """Capacity less holdings; below 0 after capacity was lowered under holders; 0 for what is not there."""
        row = self.get(node, NOWHERE)
        return row.capacity.get(resource, 0) - row.held.get(resource, 0)

    def short(self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()) -> Short | None:
        """Why `units` do not fit on the node, or None. `without`: holders whose units there are counted as free."""
        found = self.lacking(node, units, without)
        return None if found is None else Short(*found)

    def lacking(
        self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()
    ) -> tuple[ResourceKey, int, int] | None:
        """As `short`, for thousands of nodes: the fields of what that answers."""
        row = self.get(node, NOWHERE)
        if row.holdings.keys().isdisjoint(without):
            return lacking(row.capacity, row.held, units.items())
        leaving = [row.holdings[Holder(h)] for h in dict.fromkeys(without) if Holder(h) in row.holdings]
        change: dict[ResourceKey, int] = {}
        for holding in leaving:
            add_to(change, holding.units)
        return lacking(row.capacity, row.held, units.items(), change)


@dataclass(slots=True)
class Totals:
    """Running sums over all nodes, and what is looked up by resource or node. Each has a slow twin in `audit`."""

    unbound_on: dict[NodeName, int] = field(default_factory=dict)
    """How many reservations and assumptions a node carries; nodes with none are absent."""
    providers: dict[ResourceKey, dict[NodeName, None]] = field(default_factory=dict)
    """Nodes that are present and have capacity, for each ephemeral resource; oldest first."""
    capacity: dict[ResourceKey, int] = field(default_factory=dict)
    """What the nodes that are present can hold together, by resource."""
    saved: dict[ResourceKey, int] = field(default_factory=dict)
    """What all savings hold together, by resource."""
    places: dict[str, int] = field(default_factory=dict)
    """How many holdings there are for owners of a namespace, savings apart."""

    def provides(self, node: NodeName, resource: ResourceKey) -> None:
        """The node is present and has capacity of it."""
        self.providers.setdefault(resource, {})[node] = None

    def provides_no_more(self, node: NodeName, resource: ResourceKey) -> None:
        """It is away, or has none."""
        nodes = self.providers[resource]
        del nodes[node]
        if not nodes:
            del self.providers[resource]

    def count_unbound(self, node: NodeName, number: int) -> None:
        """The node carries so many."""
        if number:
            self.unbound_on[node] = number
        else:
            self.unbound_on.pop(node, None)

    def count_capacity(self, before: Vector, after: Vector) -> None:
        """A node can hold so much, and no more what it could before."""
        for resource in {**before, **after}:
            count_in(self.capacity, resource, after.get(resource, 0) - before.get(resource, 0))

    def count_place(self, namespace: str, by: int) -> None:
        """So many more are there for owners of the namespace."""
        count_in(self.places, namespace, by)

    def count_saved(self, units: Vector, sign: int) -> None:
        """So much more is saved; less, where the sign is negative."""
        for resource, number in units.items():
            count_in(self.saved, resource, sign * number)


_MOST_KEPT = 65_536
_MOST_AT_ONCE = 4_096
"""For who asks in a call of kube-scheduler, perhaps for the first time in months."""
_Each = TypeVar("_Each")


@dataclass(slots=True)
class _Since(Generic[_Each]):
    """What was told since somebody asked last, the first first, unless it is too much."""

    most: int = _MOST_KEPT
    _told: dict[_Each, None] | None = field(default_factory=dict)

    def add(self, each: _Each) -> None:
        if self._told is not None:
            self._told[each] = None
            if len(self._told) > self.most:
                self._told = None

    def drain(self) -> AbstractSet[_Each] | None:
        """None: it was too much."""
        told = self._told
        if told is None or told:
            self._told = {}
        return None if told is None else told.keys()


class Changes:
    """Which nodes have changed, gained room, or can hold something else than before: kept until somebody asks, in the
    order in which it happened first. The counts only grow."""

    def __init__(self) -> None:
        self.gain_count = 0
        """Grows whenever some node may have gained room: an unchanged number means nothing that failed can succeed."""
        self.capacity_count = 0
        """Grows whenever what nodes can hold, or whom they accept, has changed."""
        self._gains: dict[NodeName, None] = {}
        self._nodes: dict[NodeName, None] = {}
        self._for_columns: dict[NodeName, None] = {}
        self._any_for_columns = False
        """Whether there were too many: nobody may ask for months, while nodes come and go."""
        self._capacities: dict[NodeName, None] = {}
        self._held: _Since[NodeName] = _Since()
        self._holders: _Since[Holder] = _Since()
        self.holders_for_policies: _Since[Holder] = _Since(_MOST_AT_ONCE)
        """What `drain_holders` tells, for another who asks."""

    def held(self, node: NodeName, holder: Holder) -> None:
        """The holder holds something there, or no more, and is not bound."""
        self._held.add(node)
        self._holders.add(holder)
        self.holders_for_policies.add(holder)

    def drain_held(self) -> AbstractSet[NodeName] | None:
        """The nodes where that is so since the last call; None: any may be."""
        return self._held.drain()

    def drain_holders(self) -> AbstractSet[Holder] | None:
        """Who holds something else since the last call, or is bound where it held something; None: anybody may."""
        return self._holders.drain()

    def touched(self, node: NodeName) -> None:
        """Something about the node has changed."""
        self._nodes[node] = self._for_columns[node] = None

    def gained(self, node: NodeName) -> None:
        """The node may have gained room."""
        self._gains[node] = None
        self.gain_count += 1

    def capacity_changed(self, node: NodeName) -> None:
        """What the node can hold, or whom it accepts, has changed."""
        self._nodes[node] = self._for_columns[node] = self._capacities[node] = None
        self.capacity_count += 1

    def drain(self) -> AbstractSet[NodeName]:
        """The nodes of which anything has changed since the last call."""
        changes, self._nodes = self._nodes, {}
        if len(self._for_columns) > _MOST_KEPT:
            self._for_columns, self._any_for_columns = {}, True
        return changes.keys()

    def drain_for_columns(self) -> AbstractSet[NodeName] | None:
        """The same, for another who asks; None: any may have."""
        changes, self._for_columns = self._for_columns, {}
        too_many, self._any_for_columns = self._any_for_columns, False
        return None if too_many else changes.keys()

    def drain_capacities(self) -> AbstractSet[NodeName]:
        """The nodes of which capacity, or whom they accept, has changed since the last call."""
        changes, self._capacities = self._capacities, {}
        return changes.keys()

    @property
    def has_gains(self) -> bool:
        """Whether `drain_gains` has something to tell."""
        return bool(self._gains)

    @property
    def gains(self) -> AbstractSet[NodeName]:
        """What `drain_gains` has to tell."""
        return self._gains.keys()

    def drain_gains(self) -> AbstractSet[NodeName]:
        """The nodes that may have gained room since the last call, in the order in which they did first."""
        gains, self._gains = self._gains, {}
        return gains.keys()
