"""Pace: limits the calls a second of all users of a process together. Standard library only.

    pace = Pace(200)
    pace.turn()      # before each call

Turns are given in the order of the requests, at equal distances. A late caller does not catch up: a service that was
slow for a moment is not flooded afterwards. So the rate is reached only while a caller waits for a turn. Report the
counted rate, not the requested one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """`rate`: turns a second; 0: no wait. For any number of callers, in threads or greenlets."""

    def __init__(
        self,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._apart = 1 / rate if rate else 0.0
        self._now, self._sleep = now, sleep
        self._next = 0.0
        self._handing_out = threading.Lock()

    def turn(self) -> None:
        """Returns when it is the caller's turn."""
        if not self._apart:
            return
        with self._handing_out:
            now = self._now()
            mine = max(now, self._next)
            self._next = mine + self._apart
        self._sleep(mine - now)
