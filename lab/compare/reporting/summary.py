"""Summary: the figures of a report's tables, and its claims, for other programs. Pure.

A row for each; seconds, bytes and plain numbers. `low` and `high` are empty without an interval, as for a count.
`values` and `rounds` are those behind it. A ratio has `base`, and a claim has `verdict`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from lab.compare.reporting.figures import MEDIAN, P90, P99, Claim, Estimate, estimate, mean, ratio
from lab.compare.reporting.judging import Judged
from lab.compare.reporting.measured import FIGURES, Measured, Setting, Table, compared
from lab.compare.reporting.tables import CPU, cost_of
from lab.compare.vocabulary import base_of

_HEAD = ("approach", "figure", "statistic", "value", "low", "high", "values", "rounds", "base", "verdict")
_CALLED = {
    "latency": "to_bound",
    "whole_again": "to_running_again",
    "ordinary": "ordinary_to_bound",
    "in_vain": "cpu_seconds_in_vain_and_reserved",
}
"""Names of compared figures, if their own figure has another name."""
_Cells = list[str]


def summary(table: Table, claims: Sequence[Judged]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*Setting._fields, *_HEAD])
    for setting, row in table.items():
        for name, found in row.items():
            cells = [*_figures(found, cost_of([setting], table)), *_counts(found), *_ratios(row, name)]
            rows.writerows([*setting, name, *each] for each in cells)
    rows.writerows([*each.setting, each.claim.approach, *_claim(each)] for each in claims)
    return text.getvalue()


def _told(figure: str, statistic: str, found: Estimate | None, base: str = "", verdict: str = "") -> Iterator[_Cells]:
    """Yields nothing if nothing was measured."""
    if found is not None:
        numbers = [f"{value:.6g}" for value in (found.value, found.low, found.high)]
        yield [figure, statistic, *numbers, str(found.count), str(found.rounds), base, verdict]


def _figures(found: Measured, each: str) -> Iterator[_Cells]:
    """`each`: the unit of costs."""
    for statistic, how in (("median", MEDIAN), ("p90", P90), ("p99", P99)):
        yield from _told("to_bound", statistic, estimate(found.to_bound, how))
        yield from _told("to_running", statistic, estimate(found.to_running, how))
        yield from _told("to_running_again", statistic, estimate(found.to_again, how))
        yield from _told("ordinary_to_bound", statistic, estimate(found.ordinary, how))
    medians = {
        "partly_bound": found.partly,
        "all_done": found.all_done,
        "deadlock": found.deadlocks,
        "gangs_a_second": found.by_trial(lambda times: times.gangs_a_second),
        "pods_a_second": found.by_trial(lambda times: times.pods_a_second),
    }
    means = {
        "cpu_seconds_used": found.used,
        "cpu_seconds_starting_ending": found.between,
        "cpu_seconds_in_vain": found.pods_in_vain,
        "cpu_seconds_reserved": found.reserved,
        "cpu_seconds_in_vain_and_reserved": found.in_vain,
        "deadlocked_seconds": found.deadlocked,
        "kept": found.kept,
        "conflicts_per_pod": found.conflicts,
        "attempts_per_pod": found.cost("attempts", each_pod=True),
        f"cpu_per_{each}": found.cost(*CPU.values()),
    }
    for column in ("writes", "bytes", "attempts", "rollbacks", *CPU.values(), "cpu_client"):
        means[f"{column}_per_{each}"] = found.cost(column)
    for figure, sample in medians.items():
        yield from _told(figure, "median", estimate(sample))
    for figure, sample in means.items():
        yield from _told(figure, "mean", estimate(sample, mean))
    yield from _told("in_vain_of_used", "ratio of means", ratio(found.in_vain, found.used, mean))


def _counts(found: Measured) -> Iterator[_Cells]:
    """Counts, and the longest times."""
    rounds = str(len({each.trial.repetition for each in found.trials}))

    def told(figure: str, statistic: str, value: float, values: int) -> _Cells:
        return [figure, statistic, f"{value:.6g}", "", "", str(values), rounds, "", ""]

    trials, gangs = len(found.trials), found.gangs
    yield told("trials", "count", trials, trials)
    yield told("stuck", "count", found.stuck, trials)
    yield told("left_in_part", "count", sum(gang.was_left_in_part for gang in gangs), len(gangs))
    yield told("partly_bound", "longest", max((gang.partly for gang in gangs), default=0.0), len(gangs))
    rooms = [each.room for each in found.trials if each.room is not None]
    if rooms:
        lasted = [each for room in rooms for each in room.deadlocks]
        yield told("trials_with_deadlocks", "count", sum(bool(room.deadlocks) for room in rooms), len(rooms))
        yield told("deadlocks", "count", len(lasted), len(rooms))
        yield told("deadlocks_not_resolved", "count", lasted.count(inf), len(lasted))
        if lasted:
            yield told("deadlock", "longest", max(lasted), len(lasted))
    if judged := found.judged:
        yield told("trials_kept", "count", sum(value == 1 for value in judged), len(judged))
        yield told("kept", "least", min(judged), len(judged))


def _ratios(row: Mapping[str, Measured], name: str) -> Iterator[_Cells]:
    base = base_of(name, row[name].setting.workload)
    for figure, (_, statistic) in FIGURES.items():
        told = "mean" if statistic is mean else "median"
        yield from _told(_CALLED.get(figure, figure), told, compared(row, name, base, figure), base)


def _claim(found: Judged) -> _Cells:
    verdict, base = found.verdict.value, found.claim.base if isinstance(found.claim, Claim) else ""
    for cells in _told(found.claim.text, "ratio", found.found, base, verdict):
        return cells
    return [found.claim.text, "count", str(len(found.against)), "", "", str(found.values), "", "", verdict]
