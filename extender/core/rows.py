"""Rows: one node of the ledger, and private copies of it to plan on. Must not know the other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.core.holdings import Holder, Holding
from extender.core.names import NodeName, ResourceKey
from extender.core.units import Short, Vector


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

    def short(self, units: Vector) -> Short | None:
        """The first resource of which less is free than `units` asks, or None."""
        capacity, held = self.capacity, self.held
        for resource, asked in units.items():
            free = capacity.get(resource, 0) - held.get(resource, 0)
            if asked > free and asked > 0:
                return Short(resource, asked, free)
        return None

    def short_with(self, units: Vector, change: Mapping[ResourceKey, int]) -> Short | None:
        """As `short`, with `change` more of each resource free."""
        capacity, held = self.capacity, self.held
        for resource, asked in units.items():
            free = capacity.get(resource, 0) - held.get(resource, 0) + change.get(resource, 0)
            if asked > free and asked > 0:
                return Short(resource, asked, free)
        return None


def short_of_nothing(units: Vector) -> Short | None:
    """The first resource that `units` asks of a node that is not there, or None if it asks for nothing."""
    return next((Short(resource, asked, 0) for resource, asked in units.items() if asked > 0), None)


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
