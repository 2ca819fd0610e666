"""Memory: how much of it this process's control group uses, of how much it may, as the kernel says.

What the kernel would give back by itself, because it is only the cache of files not used of late, counts as free; so
does whoever decides about evictions see it. Knows control groups, version 2 and 1. Must not know what is done about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 2**60
"""Version 1 spells it as the largest number of whole pages."""


class Memory(NamedTuple):
    """Bytes: how many are in use, of how many there may be."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


def unlimited() -> Memory | None:
    """Nothing limits it, as far as anybody here is to know."""
    return None


class ControlGroup:
    """The group that a container sees as the root of `folder`."""

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
        """None where nothing limits it, or nobody says."""
        try:
            limit = self._limit.read_text().strip()
            if limit == "max" or int(limit) >= _NO_LIMIT:
                return None
            used, stat = int(self._used.read_text()), self._stat.read_text()
        except (OSError, ValueError):
            return None
        idle = (line.removeprefix(self._idle) for line in stat.splitlines() if line.startswith(self._idle))
        return Memory(max(0, used - int(next(idle, "0"))), int(limit))
