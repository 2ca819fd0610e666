"""Invariant checker: checks every invariant periodically, and reports violations.

A violation is a defect of Escher. It is counted and logged, the first one with the decisions before it. The checker
repairs nothing and stops nothing, also if the check itself fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from extender.app.cache.cache import Cache
from extender.app.observability.flight_recorder import FlightRecorder

_log = structlog.get_logger(__name__)

EVERY = 30.0
"""Seconds between checks: one takes 0.12 s for 50,000 pods and blocks answers (docs/scaling.md)."""


class InvariantChecker:
    """`violated` takes the name of an invariant that does not hold."""

    def __init__(
        self, cache: Cache, recorder: FlightRecorder, violated: Callable[[str], None], every: float = EVERY
    ) -> None:
        self._cache = cache
        self._flight_recorder = recorder
        self._violated = violated
        self._every = every
        self._told = False

    async def run(self) -> None:
        """Checks until it is cancelled."""
        while True:
            await asyncio.sleep(self._every)
            if not self._cache.whole:
                continue
            try:
                found = [(each.invariant, each.detail) for each in self._cache.violations()]
            except Exception as error:  # A defect that the check did not expect.
                found = [("audit", repr(error))]
            for invariant, detail in found:
                self._violated(invariant)
                _log.error("an invariant does not hold", invariant=invariant, detail=detail)
            if found and not self._told:
                # Once: the decisions before the first violation say most about its cause.
                self._told = True
                _log.error("the decisions before", decisions=self._flight_recorder.tell())
