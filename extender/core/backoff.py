"""How long to leave alone what has failed: each time twice as long, up to a longest time."""

from __future__ import annotations

from collections.abc import Callable


def doubled(first: float, times: int, longest: float) -> float:
    """`first` seconds, doubled so many times, `longest` at most. The same whatever its chances; who needs some adds
    them."""
    return min(first * 2.0 ** min(times, 32), longest)


class BackOff:
    """The pauses of one who tries something again and again, and how often in a row it has failed.

    `chance` gives numbers from 0 to 1: how much of the second half of each pause is waited, for whom many others may be
    turned away at the same moment.
    """

    def __init__(self, first: float, longest: float, chance: Callable[[], float] = lambda: 1.0) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._chance = chance

    def failed(self, asked: float | None = None) -> float:
        """Once more. Seconds until it is to be tried again: as many as are `asked` for, if these are more."""
        pause = doubled(self._first, self.failures, self._longest) * (1 + self._chance()) / 2
        self.failures += 1
        return max(pause, asked or 0.0)

    def succeeded(self) -> None:
        """What fails next is the first in its row."""
        self.failures = 0
