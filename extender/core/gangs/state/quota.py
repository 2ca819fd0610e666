"""Quota of gang places: how many members a namespace's gangs may have bound or reserved at once.

It counts the holdings of gang owners in the ledger, without backfill reservations. A gang that would exceed the quota
is set aside. It is in no queue: no room is reserved for it, no pod is evicted for it, no gang waits behind it. It is
looked at again when its namespace holds fewer places, or may hold more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest

from extender.core.gang_of_one import lone_pod
from extender.core.gangs.state.gang import Gang, Turn
from extender.core.ledger.ledger import Ledger
from extender.core.names import GangKey
from extender.core.tenancy.isolation import Counted, Isolation, Over

_AT_ONCE = 16
"""Number of gangs, first in turn, that are tried when places come free: mostly they use them up."""
_NEVER = (-1, -1)
"""A state that no namespace has."""


@dataclass(eq=False)
class PlaceQuota:
    _ledger: Ledger
    isolation: Isolation
    aside: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs that wait for free places in their namespace."""
    _of: dict[str, dict[GangKey, None]] = field(default_factory=dict, init=False)
    """By namespace with a quota: waiting gangs, and gangs whose elastic member was over the quota."""
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """The state of each of these namespaces when it was last looked at."""
    _coming: dict[str, tuple[tuple[int, int], int]] = field(default_factory=dict, init=False)
    """Namespaces with gangs left to report: the state then, and the number reported at once."""

    # -- free places ---------------------------------------------------------------------------------------------

    def used(self, namespace: str) -> int:
        """Number of places that the namespace's gangs hold."""
        return self._ledger.totals.places.get(namespace, 0)

    def over(self, gang: Gang) -> Over | None:
        """The excess if the gang's quorum took the places that it still needs, else None."""
        return self._over(gang, gang.needed)

    def over_by_one(self, gang: Gang) -> Over | None:
        """The excess if the gang took one more place, else None."""
        return self._over(gang, 1)

    def _over(self, gang: Gang, more: int) -> Over | None:
        namespace = gang.key.namespace
        if lone_pod(gang.key):
            return None
        return self.isolation.over(namespace, Counted.GANG_PLACES, more, self.used(namespace))

    # -- waiting gangs -------------------------------------------------------------------------------------------

    def sets_aside(self, gang: Gang) -> bool:
        """Sets the waiting gang aside if the quota requires it, and says whether it did."""
        if lone_pod(gang.key) or self.isolation.limit(gang.key.namespace, Counted.GANG_PLACES) is None:
            self.leave(gang)
            return False
        self.watch(gang)
        if self.over(gang) is None:
            self.aside.pop(gang.key, None)
            return False
        self.aside[gang.key] = None
        return True

    def concerns(self, namespace: str) -> bool:
        """Whether gangs of the namespace are set aside, or may be."""
        return namespace in self._of or self.isolation.limit(namespace, Counted.GANG_PLACES) is not None

    def watch(self, gang: Gang) -> None:
        """Looks at the gang again when its namespace holds another number of places."""
        self._of.setdefault(gang.key.namespace, {})[gang.key] = None
        self._seen.setdefault(gang.key.namespace, self._state(gang.key.namespace))

    def leave(self, gang: Gang) -> None:
        """Forgets the gang, which no longer waits."""
        self.aside.pop(gang.key, None)
        keys = self._of.get(gang.key.namespace)
        if keys is not None and keys.pop(gang.key, gang) is None and not keys:
            del self._of[gang.key.namespace], self._seen[gang.key.namespace]
            self._coming.pop(gang.key.namespace, None)

    # -- changes -------------------------------------------------------------------------------------------------

    def _state(self, namespace: str) -> tuple[int, int]:
        return self.used(namespace), self.isolation.version

    @property
    def has_news(self) -> bool:
        return bool(self._of) and any(self._seen[namespace] != self._state(namespace) for namespace in self._of)

    def take_news(self, gang_of: Callable[[GangKey], Gang | None], turn: Callable[[Gang], Turn]) -> list[Gang]:
        """Gangs to set aside, gangs to release, and gangs with a free place for an elastic member.

        Of the gangs to release, the first in turn are returned first. The others remain news until the first have used
        up the places. Otherwise thousands of gangs would come and go for each place.
        """
        found: list[Gang] = []
        for namespace, keys in list(self._of.items()):
            if self._seen[namespace] == (now := self._state(namespace)):
                continue
            gangs = [gang for key in list(keys) if (gang := gang_of(key)) is not None]
            changed = [
                gang
                for gang in gangs
                if (gang.holds_a_plan and self.over_by_one(gang) is None)
                or (not gang.holds_a_plan and (gang.key in self.aside) == (self.over(gang) is None))
            ]
            coming = [gang for gang in changed if gang.key in self.aside]
            then, told = self._coming.pop(namespace, (now, 0))
            most = 2 * told if told and then == now else _AT_ONCE
            if len(coming) <= most:
                self._seen[namespace] = now
            else:
                self._coming[namespace], self._seen[namespace] = (now, most), _NEVER
                first = {gang.key for gang in nsmallest(most, coming, key=turn)}
                changed = [gang for gang in changed if gang.key in first or gang.key not in self.aside]
            found += changed
        return found
