"""Histories: a file of digests, one line a seed, to find the seeds that behave differently."""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.fault_simulation.run import Result

_DIGITS = 16


def text(results: Sequence[Result]) -> str:
    """One line for each seed, in order: the seed and the first digits of its digest."""
    return "".join(f"{seed} {digest}\n" for seed, digest in sorted(map(_line, results)))


def differing(recorded: str, results: Sequence[Result]) -> list[Result]:
    """The runs, by seed, whose digest differs from the recorded one, or is not recorded."""
    known = {(int(seed), digest) for seed, digest in map(str.split, recorded.splitlines())}
    return sorted((each for each in results if _line(each) not in known), key=lambda each: each.plan.seed)


def _line(result: Result) -> tuple[int, str]:
    return result.plan.seed, result.digest[:_DIGITS]
