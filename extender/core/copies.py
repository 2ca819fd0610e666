"""How often a pod's requests fit on each node as it is now, and on all together: kept, so that asking costs nothing.

Knows the ledger's free room and nothing else, no selectors and no taints: it answers an upper bound of what can be
placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.core.audit import Violation
from extender.core.ledger import Ledger
from extender.core.names import NodeName, ResourceKey
from extender.core.units import Vector

Need = frozenset[tuple[ResourceKey, int]]
"""Requests without what is 0."""
_LARGEST = 10_000
"""Where nothing is asked for, everything fits: so often, it is said."""


def need_of(requests: Vector) -> Need:
    return frozenset((resource, units) for resource, units in requests.items() if units > 0)


def copies_in(units: Vector, need: Need) -> int:
    """How often the need fits into so many units."""
    return max(0, min((units.get(resource, 0) // asked for resource, asked in need), default=_LARGEST))


class Copies:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._counts: dict[Need, dict[NodeName, int]] = {}
        self._totals: dict[Need, int] = {}
        self._users: dict[Need, int] = {}

    def follow(self, need: Need) -> None:
        """It will be asked about. O(nodes) for the first who follows it."""
        self._users[need] = self._users.get(need, 0) + 1
        if self._users[need] == 1:
            self.refresh()
            counts = {node: count for node in self._ledger.rows if (count := self._count(node, need))}
            self._counts[need], self._totals[need] = counts, sum(counts.values())

    def leave(self, need: Need) -> None:
        """One who followed it does no more."""
        self._users[need] -= 1
        if not self._users[need]:
            del self._users[need], self._counts[need], self._totals[need]

    def refresh(self) -> None:
        """What is answered from now on is of this moment. O(nodes that have changed x what is followed)."""
        for node in self._ledger.drain_changes():
            for need, counts in self._counts.items():
                count, before = self._count(node, need), counts.get(node, 0)
                if count != before:
                    self._totals[need] += count - before
                    if count:
                        counts[node] = count
                    else:
                        del counts[node]

    def on(self, node: NodeName, need: Need) -> int:
        return self._counts[need].get(node, 0)

    def total(self, need: Need) -> int:
        return self._totals[need]

    def _count(self, node: NodeName, need: Need) -> int:
        row = self._ledger.rows.get(node)
        if row is None or not row.present:
            return 0
        capacity, held = row.capacity, row.held
        return copies_in({r: capacity.get(r, 0) - held.get(r, 0) for r, _ in need}, need)

    def violations(self) -> Iterator[Violation]:
        """Counts that are not what they would be, counted anew."""
        self.refresh()
        for need, counts in self._counts.items():
            anew = {node: count for node in self._ledger.rows if (count := self._count(node, need))}
            if anew != counts or sum(anew.values()) != self._totals[need]:
                yield Violation(
                    "copies", f"{sorted(need)}: {counts}, {self._totals[need]} in all; counted anew: {anew}"
                )
