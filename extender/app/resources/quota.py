"""Quota of ephemeral resources: counts resources and units by namespace, and those on their way.

Shared resources count for the namespace of their creator. A write that was admitted keeps its room until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import Counted, Isolation, Over
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of resources, and the number of their units in all."""

    resources: int = 0
    units: int = 0

    def and_more(self, other: Amount, times: int = 1) -> Amount:
        return Amount(self.resources + times * other.resources, self.units + times * other.units)

    def beyond(self, other: Amount) -> Amount:
        """Returns what this amount has more than `other`, in each number."""
        return Amount(max(0, self.resources - other.resources), max(0, self.units - other.units))

    def at_least(self, other: Amount) -> Amount:
        """Returns the greater of both, in each number."""
        return Amount(max(self.resources, other.resources), max(self.units, other.units))


NOTHING = Amount()


def amount_of(nodes: Mapping[NodeName, int]) -> Amount:
    """Returns the amount of one resource with these units by node."""
    units = sum(nodes.values())
    return Amount(int(units > 0), units)


@dataclass(eq=False)
class Underway:
    """What one call is about to set, by name: the most that each may have during the call."""

    names: dict[EphemeralName, Amount] = field(default_factory=dict)

    def may_have(self, name: EphemeralName, amount: Amount) -> None:
        self.names[name] = self.names.get(name, NOTHING).at_least(amount)


class ResourceQuota:
    """`has`: returns what is in force of an object."""

    def __init__(self, isolation: Isolation, has: Callable[[EphemeralName], Amount]) -> None:
        self._isolation = isolation
        self._has = has
        self._used: dict[str, Amount] = {}
        self._underway: dict[Underway, None] = {}
        self._freed: dict[str, None] = {}
        """Namespaces that have less than before, or less on its way."""

    def limits(self, namespace: str) -> bool:
        """Returns whether the namespace has a quota of resources or units."""
        most = self._isolation.of(namespace).most
        return Counted.RESOURCES in most or Counted.UNITS in most

    # -- what is there -------------------------------------------------------------------------------------------

    def used(self, namespace: str) -> Amount:
        """Returns what is in force."""
        return self._used.get(namespace, NOTHING)

    def changes(self, namespace: str, before: Amount, after: Amount) -> None:
        """Replaces an object's amount in force, `before`, by `after`."""
        now = self.used(namespace).and_more(after).and_more(before, -1)
        if now == NOTHING:
            self._used.pop(namespace, None)
        else:
            self._used[namespace] = now
        if before.beyond(after) != NOTHING and self.limits(namespace):
            self._freed[namespace] = None

    def take_freed(self) -> Collection[str]:
        """Returns the namespaces that have had less than before since the last call."""
        freed, self._freed = self._freed, {}
        return freed.keys()

    # -- what is on its way --------------------------------------------------------------------------------------

    @contextmanager
    def underway(self) -> Iterator[Underway]:
        """While the block lasts, what is noted there has its room."""
        call = Underway()
        self._underway[call] = None
        try:
            yield call
        finally:
            del self._underway[call]
            self._freed |= dict.fromkeys(name.namespace for name in call.names if self.limits(name.namespace))

    def _beside(self, name: EphemeralName) -> Amount:
        """Returns what calls about other objects of the namespace are about to add."""
        found = NOTHING
        for call in self._underway:
            for other, most in call.names.items():
                if other.namespace == name.namespace and other.name != name.name:
                    found = found.and_more(most.beyond(self._has(other)))
        return found

    # -- is there room -------------------------------------------------------------------------------------------

    def over(self, name: EphemeralName, more: Amount) -> Over | None:
        """Returns what exceeds the quota if the object gets `more`, or None. Counts other calls."""
        if more == NOTHING or not self.limits(name.namespace):
            return None
        there = self.used(name.namespace).and_more(self._beside(name))
        return self._isolation.over(
            name.namespace, Counted.RESOURCES, more.resources, there.resources
        ) or self._isolation.over(name.namespace, Counted.UNITS, more.units, there.units)

    def not_yet(self, namespace: str, more: Amount) -> Over | None:
        """Returns that it is not yet known if `more` exceeds the quota; None if it is nothing."""
        if more == NOTHING:
            return None
        used, limit = self.used(namespace).units, self._isolation.limit(namespace, Counted.UNITS)
        return Over(namespace, Counted.UNITS, more.units, used, used if limit is None else limit)

    def violations(self, anew: Mapping[str, Amount]) -> Iterable[str]:
        """Yields where the running total differs from `anew`, which was counted from the ledger."""
        for namespace in {**self._used, **anew}:
            if self.used(namespace) != anew.get(namespace, NOTHING):
                yield f"{namespace}: {self.used(namespace)}, recounted as {anew.get(namespace, NOTHING)}"
