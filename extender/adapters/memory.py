"""Memory: reads memory use and limit of this process's control group from the kernel.

The cache of files that were not used lately counts as free, because the kernel reclaims it when needed. The kubelet
counts the same way when it decides about evictions. Supports control groups version 2 and 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 2**60
"""Version 1 writes "no limit" as the largest number of whole pages."""


SMALL_COLLECTIONS = 5_000, 10, 2_500
"""Thresholds of garbage collection in a ready service.

A collection looks at few objects, so no verb waits long for it."""


class Memory(NamedTuple):
    """Bytes in use, and the most bytes that may be in use."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


def unlimited() -> Memory | None:
    """Always None: no limit is known."""
    return None


class ControlGroup:
    """The control group that a container sees as the root of `folder`."""

    def __init__(self, folder: Path = Path("/sys/fs/cgroup")) -> None:
        if (folder / "memory.max").exists():
            self._limit, self._used, self._stat = (
                folder / each for each in ("memory.max", "memory.current", "memory.stat")
            )
            self._idle = "inactive_file "
        else:
            old = folder / "memory"
            self._limit, self._used, self._stat = (
                old / each for each in ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
            )
            self._idle = "total_inactive_file "

    def memory(self) -> Memory | None:
        """None if there is no limit or the files cannot be read."""
        try:
            limit = self._limit.read_text().strip()
            if limit == "max" or int(limit) >= _NO_LIMIT:
                return None
            used, stat = int(self._used.read_text()), self._stat.read_text()
        except (OSError, ValueError):
            return None
        idle = (line.removeprefix(self._idle) for line in stat.splitlines() if line.startswith(self._idle))
        return Memory(max(0, used - int(next(idle, "0"))), int(limit))
