"""Rows of the ledger: nodes with capacity and holdings, sums over all nodes, and changes.

This module reads; `ledger` and `capacity` write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from extender.core.fit.fit import lacking
from extender.core.ledger.holdings import Holder, Holding
from extender.core.ledger.units import Short, add_to, count_in
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector


@dataclass(slots=True)
class Row:
    """One node. `capacity` is what may be held, `held` the running total of `holdings`."""

    sequence: int
    """Changes after each claim; never repeats in a ledger, even if the node leaves and returns."""
    facts: dict[ResourceKey, int] = field(default_factory=dict)
    """Allocatable of resources outside Escher's domain, as the node reports it."""
    ephemeral: dict[ResourceKey, int] = field(default_factory=dict)
    """Capacity of Escher's resources, as applications set it; kept while the node is absent."""
    capacity: dict[ResourceKey, int] = field(default_factory=dict)
    held: dict[ResourceKey, int] = field(default_factory=dict)
    holdings: dict[Holder, Holding] = field(default_factory=dict)
    unbound: int = 0
    """How many holdings are not bound."""
    present: bool = False

    def short(self, units: Vector, change: Vector | None = None) -> Short | None:
        """The first resource with less free than `units`, or None. `change`: more free units."""
        found = lacking(self.capacity, self.held, units.items(), change)
        return None if found is None else Short(*found)


NOWHERE = Row(0)
"""The row of a node that does not exist."""


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A private copy of a row, to plan on (Omega's replicated state)."""

    capacity: Mapping[ResourceKey, int]
    held: Mapping[ResourceKey, int]
    sequence: int


class NodeRows(dict[NodeName, Row]):
    """Rows by node. Absent nodes are included if they have holdings or ephemeral capacity."""

    def __init__(self) -> None:
        super().__init__()
        self._sequence = 0

    def of(self, node: NodeName) -> Row:
        """The node's row, created if missing."""
        row = self.get(node)
        if row is None:
            row = self[node] = Row(self.next_sequence())
        return row

    def next_sequence(self) -> int:
        """A number greater than all before."""
        self._sequence += 1
        return self._sequence

    def drop_if_empty(self, node: NodeName) -> None:
        """Removes the row if it has no content."""
        row = self.get(node)
        if row is not None and not (row.present or row.holdings or row.ephemeral):
            del self[node]

    # -- reading -------------------------------------------------------------------------------------------------

    def present(self) -> Iterator[NodeName]:
        """The nodes that are present."""
        return (name for name, row in self.items() if row.present)

    def holdings(self) -> Iterator[Holding]:
        return (holding for row in self.values() for holding in row.holdings.values())

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        """Capacity less holdings; negative if capacity fell below these, 0 for a missing node."""
        row = self.get(node, NOWHERE)
        return row.capacity.get(resource, 0) - row.held.get(resource, 0)

    def short(self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()) -> Short | None:
        """Why `units` do not fit on the node, or None. Units of holders in `without` are free."""
        found = self.lacking(node, units, without)
        return None if found is None else Short(*found)

    def lacking(
        self, node: NodeName, units: Vector, without: Sequence[Holder | PodUid] = ()
    ) -> tuple[ResourceKey, int, int] | None:
        """As `short`, for thousands of nodes: returns the fields of `Short`."""
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
    """Running sums over all nodes, and indexes by resource or node. `audit` recomputes each."""

    unbound_on: dict[NodeName, int] = field(default_factory=dict)
    """Number of unbound holdings by node; nodes with none are absent."""
    providers: dict[ResourceKey, dict[NodeName, None]] = field(default_factory=dict)
    """Present nodes with capacity, for each ephemeral resource; oldest first."""
    capacity: dict[ResourceKey, int] = field(default_factory=dict)
    """Total capacity of the present nodes, by resource."""
    saved: dict[ResourceKey, int] = field(default_factory=dict)
    """Total units of all savings, by resource."""
    places: dict[str, int] = field(default_factory=dict)
    """Number of holdings for owners of a namespace, without savings."""

    def provides(self, node: NodeName, resource: ResourceKey) -> None:
        """The node is present and has capacity of the resource."""
        self.providers.setdefault(resource, {})[node] = None

    def provides_no_more(self, node: NodeName, resource: ResourceKey) -> None:
        """The node is absent, or has no capacity of the resource."""
        nodes = self.providers[resource]
        del nodes[node]
        if not nodes:
            del self.providers[resource]

    def count_unbound(self, node: NodeName, number: int) -> None:
        """The node has `number` unbound holdings."""
        if number:
            self.unbound_on[node] = number
        else:
            self.unbound_on.pop(node, None)

    def count_capacity(self, before: Vector, after: Vector) -> None:
        """A node's capacity changed from `before` to `after`."""
        for resource in {**before, **after}:
            count_in(self.capacity, resource, after.get(resource, 0) - before.get(resource, 0))

    def count_place(self, namespace: str, by: int) -> None:
        """Changes the number of places for owners of the namespace."""
        count_in(self.places, namespace, by)

    def count_saved(self, units: Vector, sign: int) -> None:
        """Adds the units to the saved total; subtracts them if `sign` is -1."""
        for resource, number in units.items():
            count_in(self.saved, resource, sign * number)


_MOST_KEPT = 65_536
_MOST_AT_ONCE = 4_096
"""The limit for a caller within a request of kube-scheduler, perhaps its first in months."""
_Each = TypeVar("_Each")


@dataclass(slots=True)
class _Since(Generic[_Each]):
    """What was reported since the last `drain`, in order of the first report, up to a limit."""

    most: int = _MOST_KEPT
    told: dict[_Each, None] = field(default_factory=dict)
    too_many: bool = False

    def drain(self) -> AbstractSet[_Each] | None:
        """Returns the reported values once; None if they exceeded the limit."""
        told, too_many = self.told, self.too_many
        if told or too_many:
            self.told, self.too_many = {}, False
        return None if too_many else told.keys()


class Changes:
    """Nodes that changed, gained room, or have a new capacity, until a caller reads them.

    They are in the order of their first change. The counts only grow.
    """

    def __init__(self) -> None:
        self.count = 0
        """Grows with every report."""
        self.gain_count = 0
        """Grows when a node may have gained room; if unchanged, no failed placement can succeed."""
        self.capacity_count = 0
        """Grows when the capacity of a node changed, or which pods it accepts."""
        self._gains: dict[NodeName, None] = {}
        self._nodes: dict[NodeName, None] = {}
        self._for_columns: dict[NodeName, None] = {}
        self._any_for_columns = False
        """Whether the limit was exceeded: no caller may read for months while nodes come and go."""
        self._capacities: dict[NodeName, None] = {}
        self._held: _Since[NodeName] = _Since()
        self._holders: _Since[Holder] = _Since()
        self.holders_for_policies: _Since[Holder] = _Since(_MOST_AT_ONCE)
        """A second copy of what `drain_holders` returns, for another caller."""

    def held(self, node: NodeName, holder: Holder) -> None:
        """The unbound holder has a new holding there, or has lost its own."""
        self.count += 1
        held, holders, for_policies = self._held, self._holders, self.holders_for_policies
        held.told[node] = holders.told[holder] = for_policies.told[holder] = None
        # A plan reports thousands: none of them is a call.
        for since in (held, holders, for_policies):
            if len(since.told) > since.most:
                since.told, since.too_many = {}, True

    def drain_held(self) -> AbstractSet[NodeName] | None:
        """The nodes with such a change since the last call; None: any node may have one."""
        return self._held.drain()

    def drain_holders(self) -> AbstractSet[Holder] | None:
        """Holders with another holding, or newly bound, since the last call; None: any holder."""
        return self._holders.drain()

    def touched(self, node: NodeName) -> None:
        self.count += 1
        self._nodes[node] = self._for_columns[node] = None

    def gained(self, node: NodeName) -> None:
        self._gains[node] = None
        self.count += 1
        self.gain_count += 1

    def capacity_changed(self, node: NodeName) -> None:
        """The node's capacity changed, or which pods it accepts."""
        self._nodes[node] = self._for_columns[node] = self._capacities[node] = None
        self.count += 1
        self.capacity_count += 1

    def drain(self) -> AbstractSet[NodeName]:
        """The nodes with any change since the last call."""
        changes, self._nodes = self._nodes, {}
        if len(self._for_columns) > _MOST_KEPT:
            self._for_columns, self._any_for_columns = {}, True
        return changes.keys()

    def drain_for_columns(self) -> AbstractSet[NodeName] | None:
        """As `drain`, for another caller; None: any node may have changed."""
        changes, self._for_columns = self._for_columns, {}
        too_many, self._any_for_columns = self._any_for_columns, False
        return None if too_many else changes.keys()

    def drain_capacities(self) -> AbstractSet[NodeName]:
        """The nodes with another capacity, or other accepted pods, since the last call."""
        changes, self._capacities = self._capacities, {}
        return changes.keys()

    @property
    def has_gains(self) -> bool:
        """Whether `drain_gains` would return a node."""
        return bool(self._gains)

    @property
    def gains(self) -> AbstractSet[NodeName]:
        """What `drain_gains` would return."""
        return self._gains.keys()

    def drain_gains(self) -> AbstractSet[NodeName]:
        """The nodes that may have gained room since the last call, in order of their first gain."""
        gains, self._gains = self._gains, {}
        return gains.keys()
