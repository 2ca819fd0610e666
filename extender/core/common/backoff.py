"""Back-off: how long to wait after a failure, doubled with each failure up to a limit."""

from __future__ import annotations

from collections.abc import Callable


def doubled(first: float, times: int, longest: float) -> float:
    """`first` seconds, doubled `times` times, `longest` at most. The caller adds randomness."""
    return min(first * 2.0 ** min(times, 32), longest)


class BackOff:
    """The pauses between attempts at one task, and the number of failures in a row.

    `chance` returns numbers from 0 to 1: the fraction of the second half of each pause that is waited. It separates
    callers that were refused at the same moment."""

    def __init__(self, first: float, longest: float, chance: Callable[[], float] = lambda: 1.0) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._chance = chance

    def failed(self, asked: float | None = None) -> float:
        """Counts a failure. Returns the seconds to wait, at least `asked`."""
        pause = doubled(self._first, self.failures, self._longest) * (1 + self._chance()) / 2
        self.failures += 1
        return max(pause, asked or 0.0)

    def succeeded(self) -> None:
        """The next failure counts as the first."""
        self.failures = 0
