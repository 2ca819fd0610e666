"""Performers of tests: what the `Scheduler` decides is done by whoever plays the rest of the service."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeVar

from extender.app.contracts.effects import Decided, Effect
from extender.app.cycle.scheduler import Fact, Scheduler

T = TypeVar("T")


class Performing:
    """`take` has the effects of each decision; here it does nothing."""

    def take(self, effects: Sequence[Effect]) -> None:
        pass

    def do(self, decided: Decided[T]) -> T:
        self.take(decided.effects)
        return decided.answer


def at_once(steps: Iterable[None]) -> None:
    """A list is taken in, and nobody has a turn meanwhile."""
    deque(steps, maxlen=0)


def replaced(scheduler: Scheduler, kind: type[Fact], facts: Iterable[Fact]) -> Decided[None]:
    """These of the kind and no others exist, from one moment to the next."""
    at_once(scheduler.replace(kind, facts))
    return scheduler.settle()
