"""How old what we know is: the seconds since each watch last said anything, be it a bookmark, which comes every minute.

Beyond an age that is a setting nothing new is planned: no gang is given a place, and no room is reserved; what has its
place already goes on. While a kind cannot be followed at all, a switch or a policy may have changed unseen: after
`DESTROYS_WITHIN` nothing is evicted. While pods themselves cannot be followed, no pod is evicted for others: pods that
the service does not see could take the room. Must not know what a watch is made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

_log = structlog.get_logger(__name__)

STALE = "what Escher knows of the cluster is too old: nothing new is planned before it hears from the API server again"
"""What kube-scheduler is told. It is constant, for a message that changes would wake the pod."""
_STALE_AFTER = 300.0
_LOOKS_EVERY = 5.0
DESTROYS_WITHIN = 30.0
"""Seconds for which a kind may be lost before nothing is evicted any more."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A kind that cannot be read: for how long, and why. `meanwhile`: what Escher does without it."""

    seconds: float
    why: str
    meanwhile: str


class Staleness:
    """`ages`: seconds by kind, none of which grows faster than time passes. `limit`: seconds beyond which nothing new
    is planned; 0: it always is. `lost_for`: seconds for which each kind could not be followed, 0 while it can."""

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
        """Whether nothing new is to be planned."""
        return 0 < self.limit < self._oldest()

    def is_uncertain(self) -> bool:
        """Whether nothing is to be evicted."""
        return self.is_stale() or self._lost_longest() > DESTROYS_WITHIN

    def sees(self, kind: str) -> bool:
        """Whether the kind can be followed now."""
        return not self._lost_for().get(kind)

    def age(self, kind: str) -> float:
        """Seconds since the API server last said anything about the kind."""
        return self.ages().get(kind, 0.0)

    def _lost_longest(self) -> float:
        return max(self._lost_for().values(), default=0.0)

    def _oldest(self) -> float:
        return max(self.ages().values(), default=0.0)

    def told(self) -> str:
        """What explain adds: how old it is, and what comes of that; empty while it is young."""
        if self._oldest() <= (self.limit or _STALE_AFTER):
            return self._told_of_lost()
        kind, age = max(self.ages().items(), key=lambda each: each[1])
        comes = "nothing new is planned before it hears of them again" if self.is_stale() else "this may be wrong"
        return f"what Escher knows of {kind} is {age:.0f} s old: {comes}"

    def _told_of_lost(self) -> str:
        if not self.is_uncertain():
            return ""
        kind, lost = max(self._lost_for().items(), key=lambda each: each[1])
        return f"Escher could not follow {kind} for {lost:.0f} s: nothing is evicted before it can again"

    async def watch(self, changed: Callable[[], None], uncertain: Callable[[bool], None] = lambda is_so: None) -> None:
        """Calls `changed` when it has become too old, and when it is so no more, until this is cancelled; `uncertain`
        likewise, with whether nothing is to be evicted."""
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
                    _log.info("what is known of the cluster is of today again")
                changed()
            # What is young cannot be too old at the next looks.
            left = min(self.limit - self._oldest(), DESTROYS_WITHIN - self._lost_longest())
            looks = 1 if was or was_uncertain else max(1, int(left / _LOOKS_EVERY))
            await asyncio.sleep(looks * _LOOKS_EVERY)
