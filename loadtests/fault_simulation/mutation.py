"""Mutation: puts in one bug at a time, and runs seeds until one of them fails.

A bug exists only in the process that runs its seeds, and is taken out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from loadtests.fault_simulation.drawing import plan_of
from loadtests.fault_simulation.mutants import MUTANTS
from loadtests.fault_simulation.run import run
from loadtests.shared.side_by_side import lives


@dataclass(frozen=True)
class Trial:
    mutant: str
    first_seed: int
    seeds: int


@dataclass(frozen=True)
class Verdict:
    """`seeds`: how many were run; the last one found the bug as `kind` (empty: none found it)."""

    mutant: str
    seeds: int
    seed: int = 0
    kind: str = ""
    what: str = ""

    @property
    def is_found(self) -> bool:
        return bool(self.kind)

    def __str__(self) -> str:
        if not self.is_found:
            return f"{self.mutant}: not found in {self.seeds} seeds"
        return f"{self.mutant}: found at seed {self.seed}, after {self.seeds}: {self.kind}: {self.what[:100]}"


def tried(trial: Trial) -> Verdict:
    """Runs the seeds of one trial with the bug put in."""
    with MUTANTS[trial.mutant].put_in():
        for number, seed in enumerate(range(trial.first_seed, trial.first_seed + trial.seeds), 1):
            result = run(plan_of(seed))
            if not result.is_clean:
                found = result.findings[0]
                return Verdict(trial.mutant, number, seed, found.kind, found.what)
    return Verdict(trial.mutant, trial.seeds)


def verdicts(names: Sequence[str], first_seed: int, seeds: int, jobs: int) -> Iterator[Verdict]:
    """The verdicts on these bugs, or on all, as they come. Raises KeyError for an unknown name."""
    trials = [Trial(name, first_seed, seeds) for name in names or MUTANTS]
    for each in trials:
        MUTANTS[each.mutant]
    with closing(lives(tried, trials, jobs)) as finished:
        yield from finished


def table(found: Sequence[Verdict]) -> str:
    """A Markdown table, in the order of `MUTANTS`."""
    order = list(MUTANTS)
    lines = ["| bug | breaks | seeds until found | found as |", "|---|---|---|---|"]
    for each in sorted(found, key=lambda each: order.index(each.mutant)):
        count = f"{each.seeds}" if each.is_found else f"not in {each.seeds}"
        lines.append(f"| `{each.mutant}` | {MUTANTS[each.mutant].breaks} | {count} | {each.kind or '-'} |")
    caught = sum(each.is_found for each in found)
    return "\n".join([*lines, "", f"{caught} of {len(found)} bugs were found."])
