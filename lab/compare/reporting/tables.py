"""Tables: the figures of a workload, and the text on how they came about. Pure.

A row for each set-up and approach. There is no table without measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from lab.compare.reporting.figures import MEDIAN, P90, P99, Sample, estimate, mean, ratio
from lab.compare.reporting.measured import Measured, Setting, Table, compared
from lab.compare.reporting.page import Block, Tabular
from lab.compare.reporting.timeline import LASTING, LASTING_PER_MEMBER
from lab.compare.reporting.wording import NOTHING, interval, number, times
from lab.compare.runs import PODS, TRIALS
from lab.compare.vocabulary import BASE, CLAIMS, JOB_GANG, base_of

MS = 1000.0
CPU = {"service": "cpu_service", "schedulers": "cpu_scheduler", "API server": "cpu_apiserver"}
_KIB = 1024.0
_PERCENT = 100.0
_IN_TIME = f"more than {LASTING:g} s, or {LASTING_PER_MEMBER * MS:g} ms for each member if that is more"


def latencies(settings: Sequence[Setting], table: Table) -> Block:
    """The latencies of the set-ups of one table."""
    head = ["gangs", "approach", "median, ms", "p90, ms", "p99, ms", "running, ms", _to(settings, table)]
    # For several gangs another table has the number of trials.
    several = any(setting.gangs > 1 for setting in settings)
    rows = []
    for setting, name, found in _each(settings, table):
        row = [setting.short, f"`{name}`"]
        row += [] if several else [str(len(found.trials)), str(found.stuck)]
        row += [*_percentiles(found.to_bound), interval(estimate(found.to_running), MS)]
        rows.append([*row, to_base(table[setting], name)])
    return Tabular(head if several else [*head[:2], "trials", "stuck", *head[2:]], rows, PODS, 2)


def _percentiles(sample: Sample) -> list[str]:
    return [interval(estimate(sample, each), MS) for each in (MEDIAN, P90, P99)]


def to_base(row: Mapping[str, Measured], name: str, figure: str = "latency") -> str:
    """The ratio of one of FIGURES; the base's own is 1."""
    if name not in row:
        return NOTHING
    base = base_of(name, row[name].setting.workload)
    return "1" if name == base else times(compared(row, name, base, figure))


def base_told(settings: Sequence[Setting], table: Table) -> str:
    """The base of the ratios of a table, which is of one workload."""
    workload = settings[0].workload
    if workload == CLAIMS:
        return "what reserves at filter"
    base, of_jobs = base_of(BASE, workload), base_of(JOB_GANG, workload)
    has_jobs = any(JOB_GANG in table[setting] for setting in settings)
    return f"`{base}`" + (f" (`{JOB_GANG}`: to `{of_jobs}`)" if has_jobs and of_jobs != base else "")


def _to(settings: Sequence[Setting], table: Table) -> str:
    """Head of a column."""
    return f"ratio to {base_told(settings, table)}"


DONE = (
    "**All have run**: from the first ask until all gangs, and all ordinary pods, had been running. Gangs and pods are "
    "counted by the second until the last of them was bound, or until the trial was given up."
)


def done(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if no trial has several gangs."""
    rows = [
        [
            setting.short,
            f"`{name}`",
            str(len(found.trials)),
            str(found.stuck),
            interval(estimate(found.all_done)),
            to_base(table[setting], name, "all_done"),
            interval(estimate(found.by_trial(lambda t: t.gangs_a_second))),
            interval(estimate(found.by_trial(lambda t: t.pods_a_second))),
        ]
        for setting, name, found in _each(settings, table)
        if setting.gangs > 1
    ]
    head = ["gangs", "approach", "trials", "stuck", "all have run, s", _to(settings, table), "gangs/s", "pods/s"]
    return Tabular(head, rows, PODS, 2) if rows else None


AGAIN = (
    "From the ask until all members were running for good, those that replace lost ones among them. Latency, above, is "
    "until all were bound for the first time, before or after a loss."
)


def whole_again(settings: Sequence[Setting], table: Table) -> Block:
    """For workloads that lose members."""
    head = ["gangs", "approach", "trials", "stuck", "median, ms", "p90, ms", "p99, ms", _to(settings, table)]
    rows = [
        [
            *(setting.short, f"`{name}`", str(len(found.trials)), str(found.stuck)),
            *_percentiles(found.to_again),
            to_base(table[setting], name, "whole_again"),
        ]
        for setting, name, found in _each(settings, table)
    ]
    return Tabular(head, rows, PODS, 2)


ORDINARY = (
    "From the ask until the pod was bound. They are placed by the same scheduler as the gangs among which they are."
)


def ordinary(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if there are no ordinary pods."""
    rows = [
        [
            *(setting.short, f"`{name}`", str(seen.count), *_percentiles(found.ordinary)),
            to_base(table[setting], name, "ordinary"),
        ]
        for setting, name, found in _each(settings, table)
        if (seen := estimate(found.ordinary)) is not None
    ]
    head = ["gangs", "approach", "pods", "median, ms", "p90, ms", "p99, ms", _to(settings, table)]
    return Tabular(head, rows, PODS, 2) if rows else None


ROOM = (
    "**Used** is the CPU of gangs while all of their members run, and of ordinary pods while they run. **Starting, "
    "ending** is what gangs that are bound as a whole hold before and after: that is up to the nodes. **In vain** is "
    "all else that pods hold, those of gangs that are not whole, and ghosts; and what the extender's ledger has "
    "reserved, which is not seen from outside, and comes from the service (– where it was not recorded, and where "
    "there is no such ledger: what Kubernetes' own scheduler or a plugin reserves in its memory nobody sees, so that "
    "theirs is a lower bound). CPU-seconds, means for a trial. A stuck trial counts in the single columns with what "
    "was held until it was given up; in share, ratio and plot it has held infinitely much in vain, for when it is "
    "given up is up to us. **Rounds** are those behind the figures, the fewest if they differ."
)
DEADLOCKS = (
    "A **deadlock** is a span in which two gangs or more that are asked for are not whole, pods hold room in vain, no "
    "gang is bound as a whole, no ordinary pod is there that was going to end, and no pod is bound: each Binding "
    f"begins it anew, for who is placed slowly is not stuck. It lasts {_IN_TIME} (of the largest gang). It is resolved "
    "when one of these things is no longer so, if only because the room is let go, for gangs that wait and hold "
    "nothing are in no deadlock; one that lasts until the trial is given up counts as infinite. What a ledger, or a "
    "scheduler in its own memory, reserves for gangs that block each other is not seen."
)


def room(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if the pods' holdings were not recorded."""
    rows = []
    for setting, name, found in _each(settings, table):
        if estimate(found.used) is not None:
            samples = [found.used, found.between, found.pods_in_vain, found.reserved]
            shown = [interval(estimate(each, mean)) for each in samples]
            share = interval(ratio(found.in_vain, found.used, mean), _PERCENT)
            counts = [str(found.stuck), _rounds([*samples, found.in_vain])]
            row = [setting.short, f"`{name}`", *counts, *shown, share]
            rows.append([*row, to_base(table[setting], name, "in_vain")])
    head = ["gangs", "approach", "stuck", "rounds", "used", "starting, ending", "in vain: pods", "ledger"]
    return Tabular([*head, "in vain, % of used", _to(settings, table)], rows, f"{PODS}, {TRIALS}", 2) if rows else None


def deadlocks(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if the pods' holdings were not recorded."""
    rows = []
    for setting, name, found in _each(settings, table):
        known = [each.room for each in found.trials if each.room is not None]
        if known:
            lasted = [each for room in known for each in room.deadlocks]
            counts = [len(known), sum(bool(room.deadlocks) for room in known), len(lasted), lasted.count(inf)]
            rows.append(
                [
                    *(setting.short, f"`{name}`", *map(str, counts)),
                    interval(estimate(found.deadlocks)),
                    number(max(lasted)) if lasted else NOTHING,
                    interval(estimate(found.deadlocked, mean)),
                ]
            )
    head = ["gangs", "approach", "trials", "with deadlocks", "deadlocks", "not resolved"]
    return Tabular([*head, "until resolved, median, s", "longest, s", "s of a trial"], rows, PODS, 2) if rows else None


def partly(settings: Sequence[Setting], table: Table) -> Block:
    rows = []
    for setting, name, found in _each(settings, table):
        spans = [gang.partly for gang in found.gangs]
        left = sum(gang.was_left_in_part for gang in found.gangs)
        row = [setting.short, f"`{name}`", str(len(spans)), interval(estimate(found.partly), MS)]
        rows.append([*row, number(max(spans) * MS), str(left)])
    return Tabular(["gangs", "approach", "seen", "median, ms", "longest, ms", "left in part"], rows, PODS, 2)


def kept(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if no policy other than gangs was requested."""
    rows = []
    for setting, name, found in _each(settings, table):
        if judged := found.judged:
            whole = sum(value == 1 for value in judged)
            row = [setting.short, f"`{name}`", str(len(judged)), str(whole)]
            rows.append([*row, interval(estimate(found.kept, mean), digits=2), number(min(judged), 2)])
    return Tabular(["gangs", "approach", "judged", "kept", "mean part", "least"], rows, TRIALS, 2) if rows else None


KEPT = (
    "In how many trials the policy was kept, judged from where the watcher saw the pods: by every group, or all the "
    "time; and the part of the groups, or of the time, for which it was. Pods that know of no policy need not keep it."
)
PARTLY = (
    "How long some members of a gang were bound and others not, as seen from outside. Bindings are single calls, so "
    f"that no approach has 0. **Left in part** are gangs for which that lasted {_IN_TIME}. For pods that are no gang "
    "it is no fault."
)
COSTS = (
    "Means for a gang, from its ask until nothing of it is left; where ordinary pods are asked for as well, for a "
    "trial, for nobody can tell what was done for which. Stuck trials count with what they spent until they were given "
    "up, and after that for the clearing up: do not compare means of which one has stuck trials. Writes are those that "
    "the API server answered with success, without leases and events; bytes are what these requests sent; attempts "
    "are those of all kube-schedulers, for each pod that was asked for. **Rounds** are those behind the figures, the "
    "fewest if they differ."
)


def costs(settings: Sequence[Setting], table: Table) -> Block | None:
    """None if no costs were measured."""
    rows = []
    for setting, name, found in _each(settings, table):
        row = [interval(estimate(found.cost("writes"), mean)), interval(estimate(found.cost("bytes"), mean), 1 / _KIB)]
        row.append(attempts(found))
        row += [_mean(found.cost(column)) for column in CPU.values()]
        row.append(interval(estimate(found.cost(*CPU.values()), mean), MS))
        if set(row) != {NOTHING}:
            samples = [found.cost(column) for column in ("writes", "bytes", "attempts", *CPU.values())]
            counts = [str(found.stuck), _rounds([*samples, found.cost(*CPU.values())])]
            rows.append([setting.short, f"`{name}`", *counts, *row])
    each = cost_of(settings, table)
    head = ["gangs", "approach", "stuck", "rounds", f"writes/{each}", f"KiB/{each}", "attempts/pod"]
    head += [f"{part}, CPU ms/{each}" for part in (*CPU, "all")]
    return Tabular(head, rows, TRIALS, 2) if rows else None


def cost_of(settings: Sequence[Setting], table: Table) -> str:
    """The unit of costs."""
    return "trial" if any(found.has_ordinary for *_, found in _each(settings, table)) else "gang"


def attempts(found: Measured) -> str:
    """Attempts for each requested pod."""
    return interval(estimate(found.cost("attempts", each_pod=True), mean))


def _rounds(samples: Sequence[Sample]) -> str:
    """The fewest rounds behind any sample that has values."""
    rounds = [sum(bool(values) for values in each.values()) for each in samples]
    return str(min(filter(None, rounds), default=0))


def _mean(sample: Sample) -> str:
    found = estimate(sample, mean)
    return NOTHING if found is None else number(found.value * MS)


def _each(settings: Sequence[Setting], table: Table) -> Iterator[tuple[Setting, str, Measured]]:
    return ((setting, name, found) for setting in settings for name, found in table[setting].items())
