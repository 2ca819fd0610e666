"""Where the service has time and chance from: the machine, or a simulation. Must not know who asks."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from extender.app.contracts.ports import Clock


class WallClock:
    """`ports.Clock`: the machine's."""

    def __init__(self) -> None:
        self._began = time.time() - time.monotonic()

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return self._began + time.monotonic()


@dataclass(frozen=True)
class Runtime:
    """Where time and chance come from: the machine, or a simulation."""

    clock: Clock = field(default_factory=WallClock)
    chance: Callable[[], float] = random.random
    """Numbers from 0 to 1."""
    unique: Callable[[], str] = lambda: os.urandom(8).hex()
    """A new text at every call."""
    at_once: bool = False
    """Whether what takes the machine time takes none here: there is no thread to wait for."""


MACHINE = Runtime()
