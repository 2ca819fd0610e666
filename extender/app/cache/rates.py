"""Rates: how many calls a client may make. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Hashable

from extender.core.common.bounded import Bounded

_CLIENTS = 8192
"""Clients whose use is remembered; the others count as clients that have used nothing."""


class Rates:
    """A bucket for each client, of `burst` calls, into which `per_second` calls come back."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left: Bounded[Hashable, tuple[float, float]] = Bounded(_CLIENTS)

    def take(self, client: Hashable, now: float) -> float:
        """0: takes a call from the client's bucket. Else the seconds until there is one."""
        left, at = self._left.get(client, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._per_second)
        taken = left >= 1.0
        self._left[client] = (left - 1.0 if taken else left), now
        return 0.0 if taken else (1.0 - left) / self._per_second
