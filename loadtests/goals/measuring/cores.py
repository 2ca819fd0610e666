"""Cores: assigns cores to client and servers during a measurement, and detects a busy machine.

The client has its own core, and the processes that it starts have all others. With one core, or if cores cannot be
chosen, every process runs on every core.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Self

_BUSY = 0.5
"""Load average over a minute: an idle machine has less."""


def shared_out(available: Collection[int]) -> tuple[frozenset[int], frozenset[int]] | None:
    """Returns the client's cores and the servers'; None if there are too few."""
    client, *servers = sorted(available)
    return (frozenset([client]), frozenset(servers)) if servers else None


def disturbance(load: float, cores: int) -> str:
    """Returns a warning to print before the measurement; "" if the machine is idle."""
    if load <= _BUSY:
        return ""
    return f"warning: the load average is {load:.1f} on {cores} cores: others use this machine, and figures show it"


class Pinned:
    """Pins started processes to servers' cores, and after `as_client` this thread to its own."""

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
