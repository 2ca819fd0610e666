"""Running: the parts of a checked expression, and how errors act as values.

Each run counts its steps through lists and maps, so that an expression ends in time, like kube-apiserver's budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubesim.apiserver.cel.types import Type
from kubesim.apiserver.cel.values import Failed

Scope = dict[str, Any]
Run = Callable[[Scope], Any]

_STEPS = 1_000_000
_TAKEN = "@steps"
"""The key of the step count in a scope. No variable can have this name."""


@dataclass(frozen=True)
class Typed:
    """A part of an expression: the type of its value, and a function that computes it."""

    type: Type
    run: Run


def started(variables: Mapping[str, Any]) -> Scope:
    return {**variables, _TAKEN: [0]}


def step(scope: Scope) -> None:
    """Counts one more item. Raises Exhausted after a million."""
    taken = scope[_TAKEN]
    taken[0] += 1
    if taken[0] > _STEPS:
        raise Exhausted("operation cancelled: actual cost limit exceeded")


class Exhausted(Failed):
    """A failure that `absorbing` never ignores."""


def absorbing(runs: Iterable[tuple[Run, Scope]], *, decides: bool) -> bool:
    """`decides` if any part is; else raises the first error; else the opposite.

    `decides` is True for an or, and False for an and.
    """
    failed: Failed | None = None
    for run, scope in runs:
        try:
            found = run(scope)
        except Exhausted:
            raise
        except Failed as error:
            failed = failed or error
            continue
        if isinstance(found, bool) and found == decides:
            return found
        if not isinstance(found, bool):
            failed = failed or Failed("no such overload")
    if failed is not None:
        raise failed
    return not decides
