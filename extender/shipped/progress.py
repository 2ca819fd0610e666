"""Progress: what whoever waits for a cluster is told meanwhile. Knows no process, and imports nothing that does."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Told what happens, from the thread that builds."""

    def waiting(self) -> None:
        """Another process builds the same; this one waits for it."""

    def begins(self, name: str, number: int, of: int) -> None:
        """This binary is being built."""

    def ends(self, name: str, seconds: float) -> None:
        """This binary is there."""


class Progress(BuildProgress):
    """Told what happens while a cluster starts. This one says nothing; override what is of interest."""

    def waiting(self) -> None:
        return

    def begins(self, name: str, number: int, of: int) -> None:
        return

    def ends(self, name: str, seconds: float) -> None:
        return

    def starting(self, component: str) -> None:
        """The component has been started."""

    def usable(self, component: str, seconds: float) -> None:
        """The component answers, so many seconds after it was started."""

    def nodes_created(self, count: int, seconds: float) -> None:
        """All nodes exist."""
