"""Flight recorder: keeps the last decisions in memory, for the analysis of invariant violations.

Entries are put into words only when they are read: `note` takes less than a microsecond.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from extender.app.contracts.ports import Clock

REMEMBERED = 500


class FlightRecorder:
    def __init__(self, clock: Clock, remembered: int = REMEMBERED) -> None:
        self._clock = clock
        self._entries: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=remembered)

    def note(self, what: str, *about: object) -> None:
        """Adds an entry. `about`: values that do not change afterwards."""
        self._entries.append((self._clock.now(), what, about))

    def tell(self) -> list[str]:
        """Returns the entries in words, the oldest first."""
        return [
            f"{datetime.fromtimestamp(when, UTC):%H:%M:%S.%f} {what} {' '.join(map(str, about))}".rstrip()
            for when, what, about in self._entries
        ]
