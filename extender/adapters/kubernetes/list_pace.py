"""List pace: when all of a kind may be listed again, so that no API server is asked for list after list.

Lists that follow each other, while no watch between them lived for a while, are ever further apart, whatever each of
them was made for: watches that are accepted and ended at once, versions that expire as soon as they are read, a proxy
that lets lists through and no watches. The first that follows another comes at once, so that an honest 410 costs
nothing. A list that breaks off after its first page counts as one; one that is refused does not, for it costs little.
Must not know what a list is made for.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.backoff import BackOff, doubled

FIRST_PAUSE = 0.2
LISTS_APART, LISTS_FAR_APART = 60.0, 900.0
"""Seconds: the longest pause between two lists in a row, and how long a watch lives that ends the row. And between a
list and the next one for a doubt, while watches can be taken up again: at first, and where watches go on to end before
their time (a proxy may close connections every minute)."""


class ListPace:
    def __init__(self, clock: Callable[[], float], chance: Callable[[], float] = lambda: 1.0) -> None:
        self._clock = clock
        self._row = BackOff(FIRST_PAUSE, LISTS_APART, chance)
        self._at = 0.0
        """When the last one ended, or broke off."""
        self._pause = 0.0
        self._doubts = 0

    def due_in(self, heard: float | None) -> float:
        """Seconds until all may be listed. `heard`: when anything was last heard, be it a list or a watch."""
        if heard is not None and heard - self._at >= LISTS_APART:
            self._row.succeeded()
            return 0.0
        return max(0.0, self._at + self._pause - self._clock())

    def begun(self) -> None:
        """The API server has answered with a page: it has had the work."""
        pause = self._row.failed()
        self._at, self._pause = self._clock(), pause if self._row.failures > 1 else 0.0

    def ended(self, took: float = 0.0) -> None:
        """All was listed. What takes long is left alone for as long."""
        self._at = self._clock()
        if self._pause:
            self._pause = max(self._pause, took)

    # -- for a doubt -----------------------------------------------------------------------------------------------

    @property
    def due_for_doubt(self) -> float:
        """When all may be listed for a doubt; watches are taken up until then."""
        return self._at + doubled(LISTS_APART, self._doubts, LISTS_FAR_APART)

    def doubted(self) -> None:
        """A list is made for a doubt."""
        self._doubts += 1

    def trusted(self) -> None:
        """A watch has ended at its time, and nothing is in doubt."""
        self._doubts = 0
