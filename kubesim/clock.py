"""The embedded cluster's time: the time of the running event loop, counted from an epoch.

On an ordinary loop it runs like the machine's clock. On a virtual loop (`virtual_time`) it jumps.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

VIRTUAL_EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""Where virtual time begins. It is fixed so that the same seed gives the same time stamps."""


class Clock:
    """The cluster's clock. `epoch`: the time, in seconds since 1970, when the clock is created."""

    def __init__(self, epoch: float = VIRTUAL_EPOCH) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = epoch - self._loop.time()

    def now(self) -> float:
        return self._loop.time() + self._offset

    def steady(self) -> float:
        return self.now()

    def stamp(self) -> str:
        """The time as metav1.Time is written: whole seconds."""
        return datetime.fromtimestamp(int(self.now()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def micro_stamp(self) -> str:
        """The time as metav1.MicroTime is written."""
        return datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
