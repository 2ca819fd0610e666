"""Cores: who runs where while something is measured, and whether the machine is at rest.

The client has a core of its own, and what it starts has all others; where there is one core, or none can be chosen,
everything runs everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Self

_BUSY = 0.5
"""Of the load average over a minute: a machine at rest has less."""


def shared_out(available: Collection[int]) -> tuple[frozenset[int], frozenset[int]] | None:
    """The client's, and the servers'; None where there are too few."""
    client, *servers = sorted(available)
    return (frozenset([client]), frozenset(servers)) if servers else None


def disturbance(load: float, cores: int) -> str:
    """What is to be said before anything is measured; empty: nothing."""
    if load <= _BUSY:
        return ""
    return f"warning: the load average is {load:.1f} on {cores} cores: others use this machine, and figures show it"


class Pinned:
    """As long as the `with` block lasts, what this thread starts runs on the servers' cores, and, from `as_client` on,
    itself on the client's; then it has again the cores that it had."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._had = frozenset(os.sched_getaffinity(0)) if wanted and hasattr(os, "sched_getaffinity") else frozenset()
        self._parts = shared_out(self._had) if self._had else None

    def __str__(self) -> str:
        if self._parts is None:
            return "nobody is pinned to a core"
        client, servers = (", ".join(map(str, sorted(part))) for part in self._parts)
        return f"the client runs on core {client}, all that it asks on {servers}"

    def as_client(self) -> None:
        if self._parts is not None:
            os.sched_setaffinity(0, self._parts[0])

    def __enter__(self) -> Self:
        if self._parts is not None:
            os.sched_setaffinity(0, self._parts[1])
        return self

    def __exit__(self, *_: object) -> None:
        if self._parts is not None:
            os.sched_setaffinity(0, self._had)
