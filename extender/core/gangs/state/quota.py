"""Quota of gang places: how many members a namespace's gangs may have bound, or places reserved for, at once.

Counted are the holdings of its gangs' owners in the ledger, savings apart. A gang that would be too many is set aside:
it is in no queue, so that no room is saved for it, nobody is evicted for it, and nobody waits behind it. It is looked
at again when its namespace holds fewer places, or may hold more. Must not know turns, nor room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest

from extender.core.gang_of_one import lone_pod
from extender.core.gangs.state.gang import Gang, Turn
from extender.core.isolation import Counted, Isolation, Over
from extender.core.ledger import Ledger
from extender.core.names import GangKey

_AT_ONCE = 16
"""So many gangs, the first in turn, are tried when places are free: mostly they use them up."""
_NEVER = (-1, -1)
"""What is true of no namespace."""


@dataclass(eq=False)
class PlaceQuota:
    _ledger: Ledger
    isolation: Isolation
    aside: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs that wait for places to be free in their namespace."""
    _of: dict[str, dict[GangKey, None]] = field(default_factory=dict, init=False)
    """By namespace that has a quota: gangs that wait, set aside or not, and those of which a member beyond the quorum
    was turned away for it."""
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """What was true of each of these namespaces when it was looked at last."""
    _coming: dict[str, tuple[tuple[int, int], int]] = field(default_factory=dict, init=False)
    """Namespaces of which not all that are to be set aside no more have been told: what was true then, and how many of
    them were told of at once."""

    # -- is there a place ----------------------------------------------------------------------------------------

    def used(self, namespace: str) -> int:
        """How many places its gangs hold."""
        return self._ledger.totals.places.get(namespace, 0)

    def over(self, gang: Gang) -> Over | None:
        """Whether the places that its quorum still needs would be too many."""
        return self._over(gang, gang.needed)

    def over_by_one(self, gang: Gang) -> Over | None:
        """Whether one place more would be."""
        return self._over(gang, 1)

    def _over(self, gang: Gang, more: int) -> Over | None:
        namespace = gang.key.namespace
        if lone_pod(gang.key):
            return None
        return self.isolation.over(namespace, Counted.GANG_PLACES, more, self.used(namespace))

    # -- who waits -----------------------------------------------------------------------------------------------

    def sets_aside(self, gang: Gang) -> bool:
        """The gang waits for room; whether it is set aside instead."""
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
        """Whether gangs of the namespace may be set aside, or are."""
        return namespace in self._of or self.isolation.limit(namespace, Counted.GANG_PLACES) is not None

    def watch(self, gang: Gang) -> None:
        """It is to be looked at when its namespace holds another number of places."""
        self._of.setdefault(gang.key.namespace, {})[gang.key] = None
        self._seen.setdefault(gang.key.namespace, self._state(gang.key.namespace))

    def leave(self, gang: Gang) -> None:
        """It does not wait."""
        self.aside.pop(gang.key, None)
        keys = self._of.get(gang.key.namespace)
        if keys is not None and keys.pop(gang.key, gang) is None and not keys:
            del self._of[gang.key.namespace], self._seen[gang.key.namespace]
            self._coming.pop(gang.key.namespace, None)

    # -- news ----------------------------------------------------------------------------------------------------

    def _state(self, namespace: str) -> tuple[int, int]:
        return self.used(namespace), self.isolation.version

    @property
    def has_news(self) -> bool:
        return any(self._seen[namespace] != self._state(namespace) for namespace in self._of)

    def take_news(self, gang_of: Callable[[GangKey], Gang | None], turn: Callable[[Gang], Turn]) -> list[Gang]:
        """Those of whom something else is true than when they were looked at last: they are to be set aside, or no
        more; or a member beyond their quorum may have a place.

        Of those that are to be set aside no more the first in turn come first: the others are news still, as long as
        these have not used the places up. Else thousands would come and go for each place.
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
