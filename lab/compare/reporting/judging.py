"""Judging: compares claims with figures; finds gangs not placed and policies not kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from lab.compare.reporting.figures import Claim, Estimate, NeverInPart, Verdict, judged
from lab.compare.reporting.measured import Measured, Setting, Table, compared
from lab.compare.runs import REAL, STUCK
from lab.compare.vocabulary import (
    APPSPACE,
    BASE,
    BURST,
    CONTENTION,
    EXTENDER,
    LIBSPACE,
    NATIVE,
    OURS,
    POLICIES,
    SINGLE,
)

CLAIMS: tuple[Claim | NeverInPart, ...] = (
    Claim("The extender places a gang sooner than LibSpace", EXTENDER, LIBSPACE),
    Claim("Goal: in at most 0.4 of LibSpace's time (2.5 times faster)", EXTENDER, LIBSPACE, 0.4, is_goal=True),
    Claim("Goal: sooner than Kubernetes' own pod group", EXTENDER, NATIVE, is_goal=True),
    Claim("Goal: in less than 0.70 of the time of a pod group", EXTENDER, NATIVE, 0.7, is_goal=True),
    Claim(
        "Where gangs contend, all of them have run sooner by the extender than in AppSpace",
        EXTENDER, APPSPACE, workload=CONTENTION, figure="all_done",
    ),
    Claim(
        "Where gangs contend, the extender holds less room in vain than AppSpace",
        EXTENDER, APPSPACE, workload=CONTENTION, figure="in_vain",
    ),
    *(NeverInPart(f"No gang is left bound in part by `{each}`", each) for each in OURS),
)  # fmt: skip


class Judged(NamedTuple):
    """A claim in a set-up. `found`: its ratio, of `values` values.

    `against`: the trials and gangs that contradict a claim about each gang."""

    claim: Claim | NeverInPart
    setting: Setting
    verdict: Verdict
    values: int
    found: Estimate | None = None
    against: Sequence[str] = ()


def judge(table: Table, claims: Sequence[Claim | NeverInPart] = CLAIMS) -> list[Judged]:
    """Each claim in each set-up that it is about and that measured its figures."""
    return [
        found
        for claim in claims
        for setting, row in table.items()
        if (found := _judged(claim, setting, row)) is not None
    ]


def _judged(claim: Claim | NeverInPart, setting: Setting, row: Mapping[str, Measured]) -> Judged | None:
    if claim.approach not in row:
        return None
    if isinstance(claim, NeverInPart):
        if setting.workload in POLICIES:
            return None
        against = [
            f"trial {each.trial.trial}, gang {gang.gang}, for {gang.partly:.1f} s"
            for each in row[claim.approach].all_trials
            for gang in each.times.gangs
            if gang.was_left_in_part
        ]
        gangs = [gang for each in row[claim.approach].all_trials for gang in each.times.gangs]
        # If no gang was ever bound, there is nothing to judge.
        seen = any(gang.bound < inf for gang in gangs)
        verdict = Verdict.FLIPS if against else Verdict.HOLDS if seen else Verdict.UNDECIDED
        return Judged(claim, setting, verdict, len(gangs), against=against)
    if (setting.workload, setting.sampling) != (claim.workload, claim.sampling):
        return None
    found = compared(row, claim.approach, claim.base, claim.figure)
    return None if found is None else Judged(claim, setting, judged(claim, found), found.count, found)


def contradicted(found: Sequence[Judged]) -> list[Judged]:
    """Claims that a real control plane contradicts. Times of the embedded cluster do not count."""
    return [
        each
        for each in found
        if each.verdict is Verdict.FLIPS and not each.claim.is_goal and each.setting.cluster == REAL
    ]


class NotPlaced(NamedTuple):
    """In `stuck` of its `trials` a gang with enough room was not placed in time."""

    setting: Setting
    approach: str
    stuck: int
    trials: int


def not_placed(table: Table) -> list[NotPlaced]:
    """Of this project's approaches, if all gangs fit: no ratio reports gangs never placed."""
    return [
        NotPlaced(setting, name, stuck, len(row[name].all_trials))
        for setting, row in table.items()
        for name in OURS
        if setting.workload in (SINGLE, BURST) and name in row
        if (stuck := sum(each.trial.outcome == STUCK for each in row[name].all_trials))
    ]


class NotKept(NamedTuple):
    """In `broken` of `judged` trials, also warm-up ones, the policy was not fully kept."""

    setting: Setting
    approach: str
    broken: int
    judged: int


def not_kept(table: Table) -> list[NotKept]:
    """Policies other than gangs that were not kept, by any approach but plain pods."""
    found = []
    for setting, row in table.items():
        for name, mine in row.items():
            values = [each.trial.kept for each in mine.all_trials if each.trial.kept is not None]
            broken = sum(value < 1 for value in values)
            if broken and name != BASE:
                found.append(NotKept(setting, name, broken, len(values)))
    return found
