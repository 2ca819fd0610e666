"""Rounds: a virtual-time event loop that calls a check after each round with work of the service.

A round is what is ready at one moment. Nothing is visible from outside between two rounds, so a check after each round
sees every visible state.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from loadtests.life.loops import WatchedLoop

IN_SERVICE: ContextVar[bool] = ContextVar("in_service", default=False)
"""True in all tasks that run as a part of the service; a task inherits it from its starter."""


class LookedAtLoop(WatchedLoop):
    """`looks`: how many times the check ran."""

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
