"""How old what we know is: the seconds since each watch last said anything, be it a bookmark, which comes every minute.

Beyond an age that is a setting nothing new is planned: no gang is given a place, and no room is reserved; what has its
place already goes on. Must not know what a watch is made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

_log = structlog.get_logger(__name__)

STALE = "what Escher knows of the cluster is too old: nothing new is planned before it hears from the API server again"
"""What kube-scheduler is told. It is constant, for a message that changes would wake the pod."""
_STALE_AFTER = 300.0
_LOOKS_EVERY = 5.0


class Knowledge:
    """`ages`: seconds by kind, none of which grows faster than time passes. `limit`: seconds beyond which nothing new
    is planned; 0: it always is."""

    def __init__(self, ages: Callable[[], Mapping[str, float]] = dict, limit: float = _STALE_AFTER) -> None:
        self.ages = ages
        self.limit = limit

    def is_stale(self) -> bool:
        """Whether nothing new is to be planned."""
        return 0 < self.limit < self._oldest()

    def _oldest(self) -> float:
        return max(self.ages().values(), default=0.0)

    def told(self) -> str:
        """What explain adds: how old it is, and what comes of that; empty while it is young."""
        if self._oldest() <= (self.limit or _STALE_AFTER):
            return ""
        kind, age = max(self.ages().items(), key=lambda each: each[1])
        comes = "nothing new is planned before it hears of them again" if self.is_stale() else "this may be wrong"
        return f"what Escher knows of {kind} is {age:.0f} s old: {comes}"

    async def watch(self, changed: Callable[[], None]) -> None:
        """Calls `changed` when it has become too old, and when it is so no more, until this is cancelled."""
        was = False
        while True:
            if self.is_stale() != was:
                was = not was
                if was:
                    _log.error("nothing new is planned", why=self.told())
                else:
                    _log.info("what is known of the cluster is of today again")
                changed()
            # What is young cannot be too old at the next looks.
            looks = 1 if was else max(1, int((self.limit - self._oldest()) / _LOOKS_EVERY))
            await asyncio.sleep(looks * _LOOKS_EVERY)
