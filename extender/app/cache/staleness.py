"""Staleness: how old Escher's facts are, in seconds since each watch last reported anything.

A bookmark counts, and comes every minute. Beyond an age that is a setting nothing new is planned: no gang is placed,
and no room is reserved; what has a node already goes on. While a kind cannot be followed at all, a switch or a policy
may have changed unseen: after `DESTROYS_WITHIN` nothing is evicted. While pods themselves cannot be followed, no pod is
evicted for others: unseen pods could take the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

_log = structlog.get_logger(__name__)

STALE = "Escher's data about the cluster is too old: nothing new is planned until the API server reports again"
"""Message to kube-scheduler. It is constant, because a message that changes would wake the pod."""
_STALE_AFTER = 300.0
LOOKS_EVERY = 5.0
"""Seconds until one looks again whether the cache is stale."""
DESTROYS_WITHIN = 30.0
"""Seconds for which a kind may be lost before nothing is evicted any more."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A kind that cannot be read: how long, why, and what Escher does `meanwhile` without it."""

    seconds: float
    why: str
    meanwhile: str


class Staleness:
    """`limit`: seconds beyond which nothing new is planned; 0: planning never stops.

    `ages`: seconds by kind; none grows faster than time passes. `lost_for`: seconds for which each kind could not be
    followed, 0 while it can."""

    def __init__(
        self,
        ages: Callable[[], Mapping[str, float]] = dict,
        limit: float = _STALE_AFTER,
        lost_for: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self.ages = ages
        self.limit = limit
        self._lost_for = lost_for

    def is_stale(self) -> bool:
        return 0 < self.limit < self._oldest()

    def is_uncertain(self) -> bool:
        """Whether nothing may be evicted."""
        return self.is_stale() or self._lost_longest() > DESTROYS_WITHIN

    def sees(self, kind: str) -> bool:
        return not self._lost_for().get(kind)

    def age(self, kind: str) -> float:
        return self.ages().get(kind, 0.0)

    def _lost_longest(self) -> float:
        return max(self._lost_for().values(), default=0.0)

    def _oldest(self) -> float:
        return max(self.ages().values(), default=0.0)

    def told(self) -> str:
        """What explain adds: how old the facts are and what follows; empty if they are young."""
        if self._oldest() <= (self.limit or _STALE_AFTER):
            return self._told_of_lost()
        kind, age = max(self.ages().items(), key=lambda each: each[1])
        comes = "nothing new is planned until the API server reports again" if self.is_stale() else "this may be wrong"
        return f"Escher's data about {kind} is {age:.0f} s old: {comes}"

    def _told_of_lost(self) -> str:
        if not self.is_uncertain():
            return ""
        kind, lost = max(self._lost_for().items(), key=lambda each: each[1])
        return f"Escher could not watch {kind} for {lost:.0f} s: nothing is evicted until it can again"

    async def watch(self, changed: Callable[[], None], uncertain: Callable[[bool], None] = lambda is_so: None) -> None:
        """Calls `changed` when facts become too old or young again, until it is cancelled.

        Calls `uncertain` likewise, with whether nothing may be evicted."""
        was = was_uncertain = False
        while True:
            if self.is_uncertain() != was_uncertain:
                was_uncertain = not was_uncertain
                if was_uncertain and not self.is_stale():
                    _log.warning("nothing is evicted", why=self.told())
                uncertain(was_uncertain)
            if self.is_stale() != was:
                was = not was
                if was:
                    _log.error("nothing new is planned", why=self.told())
                else:
                    _log.info("Escher's data about the cluster is up to date again")
                changed()
            # Young facts cannot be too old at the next looks.
            left = min(self.limit - self._oldest(), DESTROYS_WITHIN - self._lost_longest())
            looks = 1 if was or was_uncertain else max(1, int(left / LOOKS_EVERY))
            await asyncio.sleep(looks * LOOKS_EVERY)
