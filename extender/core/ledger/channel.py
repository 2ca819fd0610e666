"""Channel: whether requests of one kind reach the API server, from the results of those sent.

Times are the caller's own.
"""

from __future__ import annotations

AT_LEAST = 3
"""Failures in a row that are needed for a conclusion."""


class Channel:
    """`patience`: seconds with failures only, after which the channel is dead."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since = 0.0
        self._last = 0.0
        self._failures = 0

    def answered(self) -> None:
        """A request succeeded."""
        self._failures = 0

    def failed(self, now: float) -> None:
        """A request failed. A failure longer than `patience` ago is no longer counted."""
        if not self._failures or now - self._last > self._patience:
            self._since, self._failures = now, 0
        self._last = now
        self._failures += 1

    @property
    def is_dead(self) -> bool:
        return self._failures >= AT_LEAST and self._last - self._since >= self._patience
