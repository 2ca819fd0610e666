"""Runtime: the service's sources of time and chance, from the machine or a simulation."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from extender.app.contracts.ports import Clock


class WallClock:
    """`ports.Clock` of the machine."""

    def __init__(self) -> None:
        self._began = time.time() - time.monotonic()

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return self._began + time.monotonic()


@dataclass(frozen=True)
class Runtime:
    """The sources of time and chance: the machine, or a simulation."""

    clock: Clock = field(default_factory=WallClock)
    chance: Callable[[], float] = random.random
    """Numbers from 0 to 1."""
    unique: Callable[[], str] = lambda: os.urandom(8).hex()
    """A new text at every call."""
    at_once: bool = False
    """Whether slow work takes no time here, so that no thread runs it."""


MACHINE = Runtime()
