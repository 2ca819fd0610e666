"""Rounds: an event loop of virtual time that has somebody look after each round in which the service did anything.

A round is what is ready at one moment. Between two rounds nothing can be seen from outside, so that whoever looks after
each has looked at every line. Must not know what is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from loadtests.life.loops import WatchedLoop

IN_SERVICE: ContextVar[bool] = ContextVar("in_service", default=False)
"""Set in whatever runs as a part of the service. Tasks inherit it from those that start them."""


class LookedAtLoop(WatchedLoop):
    """`looks`: how often it was looked."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] = lambda: None
        self.looks = 0

    def _run_once(self) -> None:
        ready = getattr(self, "_ready", ())
        is_service = any(each._context.get(IN_SERVICE) for each in ready)
        super()._run_once()
        if is_service:
            self.looks += 1
            self.look()
