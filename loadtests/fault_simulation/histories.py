"""A file of digests, one line a seed, tells which seeds behave differently from an earlier version of the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_DIGITS = 16


class _Plan(Protocol):
    @property
    def seed(self) -> int: ...


class Run(Protocol):
    """What is recorded of a run."""

    @property
    def plan(self) -> _Plan: ...

    @property
    def digest(self) -> str: ...


def text(results: Sequence[Run]) -> str:
    """One line for each seed, in order: the seed and the first digits of its digest."""
    return "".join(f"{seed} {digest}\n" for seed, digest in sorted(_digests(results).items()))


def differing(recorded: str, results: Sequence[Run]) -> list[Run]:
    """The runs, in order of their seeds, whose digest is not as recorded; of a seed that is not recorded, too."""
    known = dict(line.split() for line in recorded.splitlines())
    others = (each for each in results if known.get(str(each.plan.seed)) != each.digest[:_DIGITS])
    return sorted(others, key=lambda each: each.plan.seed)


def _digests(results: Sequence[Run]) -> dict[int, str]:
    return {each.plan.seed: each.digest[:_DIGITS] for each in results}
