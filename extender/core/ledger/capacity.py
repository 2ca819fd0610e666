"""Capacity of the nodes: reported allocatable, and ephemeral capacity that applications set.

A change never touches a holder. Holders may then hold more than the capacity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from extender.core.ledger.node_rows import Changes, NodeRows, Row, Totals
from extender.core.names import in_domain
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector


@dataclass(frozen=True)
class Capacity:
    """`domain`: of the resources that applications set."""

    domain: str
    _rows: NodeRows
    _totals: Totals
    _changes: Changes

    @cached_property
    def is_ephemeral(self) -> Callable[[str], bool]:
        """Whether a resource is one that applications set."""
        return partial(in_domain, domain=self.domain)

    def set_node(self, node: NodeName, allocatable: Vector) -> None:
        """The node has this allocatable. Resources of Escher's domain are ignored: see drift."""
        row = self._rows.of(node)
        facts = {r: units for r, units in allocatable.items() if not self.is_ephemeral(r)}
        if row.present and row.facts == facts:
            return
        before = row.capacity
        row.facts = facts
        row.capacity = {**facts, **row.ephemeral}
        self._changed(node, before, row.capacity)
        if not row.present:
            row.present = True
            for resource in row.ephemeral:
                self._totals.provides(node, resource)
        if any(units > before.get(resource, 0) for resource, units in row.capacity.items()):
            self._changes.gained(node)

    def remove_node(self, node: NodeName) -> None:
        """The node is absent. Holdings and ephemeral capacity stay; its pods end separately."""
        row = self._rows.get(node)
        if row is None or not row.present:
            return
        row.present = False
        self._changed(node, row.capacity, {})
        row.facts = {}
        row.capacity = {}
        for resource in row.ephemeral:
            self._totals.provides_no_more(node, resource)
        self._rows.drop_if_empty(node)

    def set(self, node: NodeName, resource: ResourceKey, units: int) -> None:
        """The node has `units` of an ephemeral resource; 0 removes it. Holders may then exceed it.

        The node need not be known: the capacity takes effect when the node appears. Raises ValueError.
        """
        if units < 0 or not in_domain(resource, self.domain):
            raise ValueError(f"capacity of {resource} on {node} cannot be set to {units}")
        row = self._rows.of(node)
        before = row.ephemeral.get(resource, 0)
        if units:
            row.ephemeral[resource] = units
        else:
            row.ephemeral.pop(resource, None)
        there = row.present
        self._changed(node, {resource: before} if there else {}, {resource: units} if there else {})
        if there:
            self._in_force(node, row, resource, before, units)
        self._rows.drop_if_empty(node)

    def _in_force(self, node: NodeName, row: Row, resource: ResourceKey, before: int, units: int) -> None:
        if units:
            row.capacity[resource] = units
            self._totals.provides(node, resource)
            if units > before:
                self._changes.gained(node)
        elif before:
            del row.capacity[resource]
            self._totals.provides_no_more(node, resource)

    def reconsider(self, node: NodeName) -> None:
        """The node counts as having gained room: something other than its resources changed."""
        if (row := self._rows.get(node)) is not None:
            # An absent node has no room to gain. When it returns, all of its room is a gain.
            if row.present:
                self._changes.gained(node)
            self._changes.capacity_changed(node)

    def _changed(self, node: NodeName, before: Vector, after: Vector) -> None:
        self._changes.capacity_changed(node)
        self._totals.count_capacity(before, after)
