"""Restraint: what is done at most for a gang that preempts, and why nobody is made to leave for it.

Values only, for people to be told of. Must not know how it is found out: see `preemption`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is done in vain at most for one gang in an hour (see `vain`), and whether pods of schedulers that are not
    ours may be victims.

    `despite_budgets`: pods that a disruption budget protects leave too, where the gang finds no room without them.
    `for_policies`: whether pods leave for a gang of one where nothing but a policy keeps it from their place.
    """

    preemptions: int = 4
    pods: int = 1000
    others: bool = False
    despite_budgets: bool = True
    for_policies: bool = False


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class UnknownAsks:
    """No preemption: the gang requires what a plan does not look at, and might not fit after all."""

    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No preemption: so many were in vain within an hour, of so many pods; a bound on them is met. `of_namespace`: the
    one on all gangs of the gang's namespace; else its own."""

    preemptions: int
    pods: int
    bounds: Bounds
    of_namespace: bool = False


@dataclass(frozen=True, slots=True)
class InVain:
    """No preemption: the gang could not be bound though others had left, so many times. Not before `until`, nor before
    something has changed."""

    times: int
    until: float


@dataclass(frozen=True, slots=True)
class NobodySuffices:
    """No preemption: the gang would not fit if all who may leave did. `protected`: pods of lower priority that may not,
    by the reason."""

    protected: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BudgetsUnknown:
    """No preemption: the disruption budgets could not be read yet."""


WhyNot = BudgetsUnknown | UnknownAsks | Exhausted | InVain | NobodySuffices

BRAKED = "the brake's"
DAEMONS, OTHERS, MADE_AGAIN, BUDGET, REFUSED = (
    "a node's own", "another scheduler's", "made again at once", "a disruption budget's", "not to be evicted lately"
)  # fmt: skip
TAKEN_IN_VAIN = "evicted in vain lately"
"""Who is protected, in a few words."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A gang that had to leave for another and could only in part: `left` of its `size` members are evicted."""

    by: str
    left: int
    size: int
    why: str
