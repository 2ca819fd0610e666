"""Performers of tests: what the keeper decides is done by whoever plays the rest of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from extender.app.decisions import Decided, Effect

T = TypeVar("T")


class Performing:
    """`take` has the effects of each decision; here it does nothing."""

    def take(self, effects: Sequence[Effect]) -> None:
        pass

    def do(self, decided: Decided[T]) -> T:
        self.take(decided.effects)
        return decided.answer
