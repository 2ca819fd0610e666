"""Running: what a checked expression is made of, and how errors are values.

Every run counts its steps through lists and maps, and an expression ends in time, as kube-apiserver's budget has it.
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
"""Where a scope has how many steps were taken. No variable can be called so."""


@dataclass(frozen=True)
class Typed:
    """A part of an expression: what its value is, and how to get it."""

    type: Type
    run: Run


def started(variables: Mapping[str, Any]) -> Scope:
    return {**variables, _TAKEN: [0]}


def step(scope: Scope) -> None:
    """One more item is looked at. Raises Failed after a million."""
    taken = scope[_TAKEN]
    taken[0] += 1
    if taken[0] > _STEPS:
        raise Exhausted("operation cancelled: actual cost limit exceeded")


class Exhausted(Failed):
    """Nothing absorbs this one."""


def absorbing(runs: Iterable[tuple[Run, Scope]], *, decides: bool) -> bool:
    """`decides` if one of them is; else the first error, if there is one; else the contrary.

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
