"""Work budget: how much work is done before other tasks run on the event loop.

Work is counted in steps (a node examined for one kind of pods) and not in time, so that equal inputs give equal
decisions.
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
        """Whether the slice is used up: remaining work is for the next slice."""
        return self.spent >= self.limit
