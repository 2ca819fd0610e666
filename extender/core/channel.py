"""Channel: whether requests of one kind come through at all, by what became of those that were sent.

Pure: times are the caller's own. Must not know requests, nor what they are for.
"""

from __future__ import annotations

AT_LEAST = 3
"""Failures in a row without which nothing is concluded."""


class Channel:
    """`patience`: seconds of failures, and of nothing else, after which it is dead."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since = 0.0
        self._last = 0.0
        self._failures = 0

    def answered(self) -> None:
        """One has come through."""
        self._failures = 0

    def failed(self, now: float) -> None:
        """One has not. What failed long before says nothing about today."""
        if not self._failures or now - self._last > self._patience:
            self._since, self._failures = now, 0
        self._last = now
        self._failures += 1

    @property
    def is_dead(self) -> bool:
        return self._failures >= AT_LEAST and self._last - self._since >= self._patience
