"""Work in slices: how much may be done before others have their turn on the event loop.

Counted in steps (a node looked at for one kind of pods), and not in time, so that the same inputs give the same
decisions. Must not know what the work is.
"""

from __future__ import annotations

from dataclasses import dataclass

_SLICE = 20_000
"""Steps: some ten to forty milliseconds."""


@dataclass(slots=True)
class Work:
    limit: int = _SLICE
    spent: int = 0

    def renew(self) -> None:
        """A new slice begins."""
        self.spent = 0

    def take(self, steps: int) -> None:
        self.spent += steps

    @property
    def is_over(self) -> bool:
        """Whether the slice has been used up: what is left is for the next one."""
        return self.spent >= self.limit
