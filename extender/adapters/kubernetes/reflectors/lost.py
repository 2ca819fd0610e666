"""Lost: for how long a kind could not be followed, and why."""

from __future__ import annotations

from collections.abc import Callable


class Lost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.why = ""
        """Empty while it can be followed."""
        self._clock = clock
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Since the first failure in a row; 0 while the kind can be followed."""
        return 0.0 if self._since is None else self._clock() - self._since

    def failed(self, why: str) -> None:
        self.why = why
        if self._since is None:
            self._since = self._clock()

    def over(self) -> None:
        self._since, self.why = None, ""
