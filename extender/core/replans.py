"""Replans: how often a gang's plan came to nothing because of kube-scheduler: it would have none of the nodes for a
member, or did not bring all members to their places in time.

That happens when it knows of a rule that we do not, or waits for something else. A few times in a row it may be late
news; then the gang is left alone for a while, twice as long each time, and is planned at once only if its members have
changed, or nodes have come or gone. Knows times and counts; must not know which nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.back_off import doubled
from extender.core.gang import Gang
from extender.core.names import GangKey

FREE = 3
"""So many in a row cost nothing."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
LONGEST_UNASKED = 3600.0
"""Where kube-scheduler has not asked about every member: should it do so, that ends the pause."""


@dataclass(slots=True)
class _Failed:
    changes: int
    node_count: int
    times: int = 0
    until: float = 0.0


class Replans:
    def __init__(self) -> None:
        self._failed: dict[GangKey, _Failed] = {}

    def failed(self, gang: Gang, node_count: int, now: float, longest: float = LONGEST_PAUSE) -> float | None:
        """Another plan came to nothing. Until when the gang is left alone, if it is; no longer than that."""
        known = self._failed.get(gang.key)
        if known is None or (known.changes, known.node_count) != (gang.changes, node_count):
            known = self._failed[gang.key] = _Failed(gang.changes, node_count)
        known.times += 1
        if known.times <= FREE:
            return None
        known.until = now + doubled(FIRST_PAUSE, known.times - FREE - 1, longest)
        return known.until

    def pauses(self, gang: Gang, node_count: int, now: float) -> bool:
        """Whether the gang is to be left alone now: nothing has changed, and its pause is not over."""
        known = self._failed.get(gang.key)
        if known is None or now >= known.until:
            return False
        return (known.changes, known.node_count) == (gang.changes, node_count)

    def end_pause(self, gang: Gang) -> None:
        """The gang may be planned at once. Should that come to nothing too, its next pause is longer all the same."""
        if gang.key in self._failed:
            self._failed[gang.key].until = 0.0

    def forget(self, gang: Gang) -> None:
        """It is bound, or is no more."""
        self._failed.pop(gang.key, None)
