"""The embedded cluster's time: that of the running event loop, counted from a moment of the calendar.

On an ordinary loop it runs as everybody's does; on a virtual one (`virtual_time`) it jumps.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

VIRTUAL_EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""Where virtual time begins, so that the same seed gives the same stamps."""


class Clock:
    """`epoch`: the time of day, in seconds since 1970, that it is when this is made."""

    def __init__(self, epoch: float = VIRTUAL_EPOCH) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = epoch - self._loop.time()

    def now(self) -> float:
        return self._loop.time() + self._offset

    def steady(self) -> float:
        return self.now()

    def stamp(self) -> str:
        """As metav1.Time is written: whole seconds."""
        return datetime.fromtimestamp(int(self.now()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def micro_stamp(self) -> str:
        """As metav1.MicroTime is written."""
        return datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
