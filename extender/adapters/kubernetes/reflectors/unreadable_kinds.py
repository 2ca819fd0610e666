"""Unreadable kinds: which kinds cannot be read, since when and why, and what Escher does meanwhile.

`/readyz` reports such a kind while it is so, and so does the doctor. The log reports it once at the beginning, and once
at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from extender.adapters.kubernetes.reflectors.lost import Lost
from extender.app.cache.staleness import DESTROYS_WITHIN, Loss

_log = structlog.get_logger(__name__)

TOLD_AFTER = DESTROYS_WITHIN
"""Seconds. A refusal or outage of a moment is no loss."""
_LOOKS_EVERY = 5.0

_NARROWS = "nothing is evicted; nothing new is planned once this is older than stale_after_seconds"
MEANWHILE: Mapping[str, str] = {
    "jobs": "what known Jobs promised counts; a newer Job's gang is planned when all of its members exist",
    "daemonsets": "pods are matched to the DaemonSets that were known before",
    "transactionintents": "unfinished transactions of other instances are not rolled back; if intents cannot be "
    "written either, transactions over several objects are refused",
    "poddisruptionbudgets": "the budgets that were known before apply; if they cannot be read just before an "
    "eviction either, no pod is evicted for a gang",
}
"""For kinds that were read before; any other kind has `_NARROWS`."""
NEVER_READ: Mapping[str, str] = {
    "jobs": "a gang is planned when all of its members exist",
    "daemonsets": "pods of DaemonSets are preempted like any others",
    "transactionintents": "transactions over several objects are refused",
    "poddisruptionbudgets": "no gang preempts",
}
_NOT_READY = "Escher decides nothing before it has been read"


class Followed(Protocol):
    """A kind that can become unreadable. `synced` is set once it has been read."""

    @property
    def synced(self) -> asyncio.Event: ...

    @property
    def kind(self) -> str: ...

    @property
    def lost(self) -> Lost: ...


class UnreadableKinds:
    """`followed` returns the kinds that are to be read."""

    def __init__(self, followed: Callable[[], Iterable[Followed]]) -> None:
        self._followed = followed

    def now(self) -> dict[str, Loss]:
        """The kinds that could not be read for a while, with the reason."""
        return {
            each.kind: Loss(each.lost.seconds, each.lost.why, _meanwhile(each))
            for each in self._followed()
            if each.lost.seconds > TOLD_AFTER
        }

    async def watch(self) -> None:
        """Logs the beginning and the end of each loss, until cancelled."""
        told: dict[str, Loss] = {}
        while True:
            now = self.now()
            for kind, loss in now.items():
                if kind not in told:
                    said = {"seconds": round(loss.seconds), "why": loss.why, "meanwhile": loss.meanwhile}
                    _log.warning("a kind cannot be read", kind=kind, **said)
            for kind, loss in told.items():
                if kind not in now:
                    _log.info("a kind can be read again", kind=kind, seconds=round(loss.seconds))
            told = now
            await asyncio.sleep(_LOOKS_EVERY)


def _meanwhile(each: Followed) -> str:
    if each.synced.is_set():
        return MEANWHILE.get(each.kind, _NARROWS)
    return NEVER_READ.get(each.kind, _NOT_READY)
