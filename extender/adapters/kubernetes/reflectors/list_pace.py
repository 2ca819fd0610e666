"""List pace: when a kind may be listed again, so that no API server gets one list after another.

Lists in a row, without a long-lived watch between them, get further and further apart, for any reason. Examples are
watches that end at once, versions that expire at once, and a proxy that passes lists but no watches. The second list of
a row comes at once, so that an honest 410 costs nothing. A list that fails after its first page counts as one list. A
refused list does not count, because it costs little.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.common.backoff import BackOff, doubled

FIRST_PAUSE = 0.2
LISTS_APART, LISTS_FAR_APART = 60.0, 900.0
"""Seconds: the longest pause in a row of lists, and the life of a watch that ends the row.

Between lists for a doubt: the first at the start, the second if watches keep ending early (a proxy may, every minute).
"""


class ListPace:
    def __init__(self, clock: Callable[[], float], chance: Callable[[], float] = lambda: 1.0) -> None:
        self._clock = clock
        self._row = BackOff(FIRST_PAUSE, LISTS_APART, chance)
        self._at = 0.0
        """When the last list ended, or its first page was read."""
        self._pause = 0.0
        self._doubts = 0

    def due_in(self, heard: float | None) -> float:
        """Seconds until the kind may be listed. `heard`: when a list or a watch last answered."""
        if heard is not None and heard - self._at >= LISTS_APART:
            self._row.succeeded()
            return 0.0
        return max(0.0, self._at + self._pause - self._clock())

    def begun(self) -> None:
        """Counts a list whose first page the API server has answered: it has had the work."""
        pause = self._row.failed()
        self._at, self._pause = self._clock(), pause if self._row.failures > 1 else 0.0

    def ended(self, took: float = 0.0) -> None:
        """Records the end of a list. In a row, the next pause is at least the duration `took`."""
        self._at = self._clock()
        if self._pause:
            self._pause = max(self._pause, took)

    # -- for a doubt -----------------------------------------------------------------------------------------------

    @property
    def due_for_doubt(self) -> float:
        """When the kind may be listed for a doubt; until then, watches resume."""
        return self._at + doubled(LISTS_APART, self._doubts, LISTS_FAR_APART)

    def doubted(self) -> None:
        """Counts a list for a doubt."""
        self._doubts += 1

    def trusted(self) -> None:
        """Resets the count: a watch has ended in time, and nothing is in doubt."""
        self._doubts = 0
