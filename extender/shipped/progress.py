"""Progress: the callbacks that report how far the start of a cluster is."""

from __future__ import annotations

from typing import Protocol


class BuildProgress(Protocol):
    """Callbacks during a build, called from the thread that builds."""

    def waiting(self) -> None:
        """Another process builds the same; this one waits for it."""

    def begins(self, name: str, number: int, of: int) -> None:
        """The build of this binary begins."""

    def ends(self, name: str, seconds: float) -> None:
        """This binary is complete."""


class Progress(BuildProgress):
    """Callbacks during a cluster's start. This class ignores them; override what is of interest."""

    def waiting(self) -> None:
        return

    def begins(self, name: str, number: int, of: int) -> None:
        return

    def ends(self, name: str, seconds: float) -> None:
        return

    def starting(self, component: str) -> None:
        """The component has been started."""

    def usable(self, component: str, seconds: float) -> None:
        """The component answers, `seconds` after its start."""

    def nodes_created(self, count: int, seconds: float) -> None:
        """All nodes exist."""
