"""Timer: calls `Scheduler.tick` at the next deadline. There is one timer for all deadlines."""

from __future__ import annotations

import asyncio
from contextvars import Context

from extender.app.contracts.effects import Performer
from extender.app.cycle.scheduler import Scheduler


class Timer:
    def __init__(self, scheduler: Scheduler, performer: Performer) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")
        self._stopped = False

    def set(self) -> None:
        """Makes the `Scheduler` tick at its next deadline."""
        if self._stopped:
            return
        deadline = self._scheduler.next_deadline()
        if deadline is None or deadline >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = deadline
        wait = max(0.0, deadline - self._scheduler.cache.clock.steady())
        # A fresh context: what is due then has nothing to do with the request that is being answered now.
        self._timer = asyncio.get_running_loop().call_later(wait, self._ring, context=Context())

    def _ring(self) -> None:
        self._timer, self._at = None, float("inf")
        try:
            self._performer.do(self._scheduler.tick())
        finally:
            # Also after an error: without a timer, no gang would reach a deadline.
            self.set()

    def stop(self) -> None:
        """Stops the timer for good."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
