"""Preemption limits: bounds on preemption, and the reasons why no pod is evicted for a gang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most preemptions and pods without effect for one gang in an hour (see `vain`).

    `others`: foreign pods may be victims. `despite_budgets`: pods that a disruption budget protects leave too, if the
    gang finds no room otherwise. `for_policies`: pods leave for a gang of one even if only a policy keeps it from their
    nodes.
    """

    preemptions: int = 4
    pods: int = 1000
    others: bool = False
    despite_budgets: bool = True
    for_policies: bool = False


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class UnknownAsks:
    """No preemption: the gang has requirements that a plan does not look at, so it might not fit."""

    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No preemption: preemptions or evicted pods without effect in an hour have reached a bound.

    `of_namespace`: the bound on all gangs of the gang's namespace; else its own."""

    preemptions: int
    pods: int
    bounds: Bounds
    of_namespace: bool = False


@dataclass(frozen=True, slots=True)
class InVain:
    """No preemption: the gang was not bound although victims left, this number of times.

    The next is not before `until`, and not before something has changed."""

    times: int
    until: float


@dataclass(frozen=True, slots=True)
class TooFewVictims:
    """No preemption: the gang would not fit even if all permitted victims left.

    `protected`: number of pods of lower priority that may not leave, by reason."""

    protected: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BudgetsUnknown:
    """No preemption: the disruption budgets could not be read yet."""


WhyNot = BudgetsUnknown | UnknownAsks | Exhausted | InVain | TooFewVictims

SWITCHED_OFF = "under a safety switch"
DAEMONS, OTHERS, MADE_AGAIN, BUDGET, REFUSED = (
    "pinned to their node", "of another scheduler", "recreated at once", "under a disruption budget", "eviction refused"
)  # fmt: skip
TAKEN_IN_VAIN = "evicted without effect recently"
"""Short reasons why a pod is protected."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A gang preempted only in part: `left` of its `size` members are evicted."""

    by: str
    left: int
    size: int
    why: str
