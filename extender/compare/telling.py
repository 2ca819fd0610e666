"""Telling: what a report says of a run, in words and tables, all of it computed from the figures. Pure.

Of what was not measured it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from extender.compare.figures import LEVEL, MEDIAN, P90, P99, RESAMPLES, ROUNDS, Estimate, estimate, mean
from extender.compare.measured import Measured, Setting, Table, judge, ratio_of
from extender.compare.page import Block, Heading, Points, Said, Tabular
from extender.compare.runs import DEFAULT_SAMPLING, LOG, PODS, REAL, RUN, TRIALS, Recorded, Run
from extender.compare.vocabulary import (
    APPROACHES,
    BASE,
    BASE_AGAIN,
    BY_POLICY,
    LIBSPACE,
    OTHERS,
    OURS,
    PESSIMISTIC,
    POLICIES,
    SPACES,
    WORKLOADS,
    base_of,
    in_order,
)
from extender.compare.wording import NOTHING, interval, listed, many, number, times

MS = 1000.0
_Compared = Callable[[Mapping[str, Measured], str, str], Estimate | None]
CPU = {"service": "cpu_service", "schedulers": "cpu_scheduler", "API server": "cpu_apiserver"}
_KIB = 1024.0
_COLUMNS = 5
"""Set-ups beside each other, as many as a page is wide."""
_LASTING, _LASTING_PER_MEMBER = 1.0, 0.02
"""Seconds after which a gang that is bound in part counts as left so: Bindings are single calls, and take a moment."""


# -- what came out ---------------------------------------------------------------------------------------------------


def opening(recorded: Recorded, table: Table) -> list[Block]:
    return [
        Said(
            f"Latency is from the moment when a gang is asked for to the moment when the last of its members was seen "
            f"bound, by a process that watches pods and knows nothing of approaches. In brackets is the interval that "
            f"covers the true figure in {LEVEL:.0%} of all runs. Machines differ: read the ratios, not the "
            "milliseconds."
        ),
        *_legend(table, APPROACHES, of_policies=False),
        *_legend(table, BY_POLICY, of_policies=True),
    ]


def _legend(table: Table, known: dict[str, str], *, of_policies: bool) -> list[Block]:
    """What each approach is, where a policy other than gangs is asked for, or a gang is."""
    rows = [row for setting, row in table.items() if (setting.workload in POLICIES) == of_policies]
    names = in_order({name for row in rows for name in row}, known)
    if not names:
        return []
    points = Points([f"`{name}`: {known[name]}" if name in known else f"`{name}`" for name in names])
    return [*[Said("Where a policy other than gangs is asked for:")] * of_policies, points]


def claims(table: Table) -> list[Block]:
    found = judge(table)
    if not found:
        return []
    rows = [
        [each.claim.text, f"{each.setting.where}, {each.setting.what}", f"**{each.verdict.value}**", times(each.found)]
        for each in found
    ]
    return [
        Heading("Claims"),
        Said(
            "A claim holds, or flips, where the whole interval of the ratio is on one side of what it says; "
            "otherwise this run does not decide it."
        ),
        Tabular(["claim", "set-up", "verdict", "ratio of medians"], rows, PODS, 3),
    ]


def ratios(table: Table) -> list[Block]:
    """Of each approach to its base, all set-ups of a workload together."""
    blocks: list[Block] = []
    for workload, each in groupby((setting for setting, row in table.items() if len(row) > 1), lambda s: s.workload):
        settings = list(each)
        names = in_order({name for setting in settings for name in table[setting]} - {BASE}, APPROACHES)
        for at in range(0, len(settings), _COLUMNS):
            shown = settings[at : at + _COLUMNS]
            rows = [[f"`{name}`", *(_ratio(table[setting], name) for setting in shown)] for name in names]
            head = [WORKLOADS.get(workload, workload), *map(_setting, shown)]
            blocks.append(Tabular(head, [row for row in rows if set(row[1:]) != {NOTHING}], PODS))
    said = f"Median latency as a ratio to `{BASE}` in the same rounds"
    said += "; that of `job-gang` is to `job`." if any("job-gang" in row for row in table.values()) else "."
    return [Heading("All ratios"), Said(said), *blocks] if blocks else []


def losses(table: Table) -> list[Block]:
    """Where ours is behind the others, and what a gang costs beside pods that are none."""
    measures: list[tuple[str, _Compared]] = [
        ("takes longer than", ratio_of),
        ("writes more than", _writes),
        ("takes more CPU than", _cpu),
    ]
    blocks: list[Block] = []
    for heading, others, known in (
        (Heading("Where ours loses"), OTHERS, measures),
        (Heading("What a gang costs beside pods that are none", 3), (BASE,), measures),
    ):
        points = [point for verb, compared in known for point in _comparisons(table, others, compared, verb)]
        if points:
            blocks += [heading, Points(points)]
    if blocks:
        said = "By median latency, and by the mean of writes and of CPU seconds, where the whole interval says so."
        blocks.insert(1, Said(said))
    return blocks


def _writes(row: Mapping[str, Measured], approach: str, base: str) -> Estimate | None:
    return ratio_of(row, approach, base, lambda each: each.cost("writes"), mean)


def _cpu(row: Mapping[str, Measured], approach: str, base: str) -> Estimate | None:
    return ratio_of(row, approach, base, lambda each: each.cost(*CPU.values()), mean)


def _comparisons(table: Table, others: Sequence[str], compared: _Compared, verb: str) -> Iterator[str]:
    """A point for each that loses somewhere; one for all those that do not."""
    nowhere: dict[str, list[str]] = {}
    for ours in OURS:
        for other in others:
            found = [(setting, compared(row, ours, other)) for setting, row in table.items()]
            known = [(setting, each) for setting, each in found if each is not None]
            lost = [(setting, each) for setting, each in known if each.above(1)]
            won = sum(each.below(1) for _, each in known)
            undecided = len(known) - len(lost) - won - sum(each.low == each.high == 1 for _, each in known)
            if lost:
                where, worst = max(lost, key=lambda each: each[1].value)
                said = f"`{ours}` {verb} `{other}` in {len(lost)} of {many(len(known), 'set-up')}"
                said += f": by a factor of {'up to ' if len(lost) > 1 else ''}{times(worst)}"
                rest = [f"less in {won}"] * bool(won) + [f"undecided in {undecided}"] * bool(undecided)
                yield f"{said} with {_setting(where)}{'; ' if rest else ''}{listed(rest)}."
            elif known:
                nowhere.setdefault(ours, []).append(
                    f"`{other}`" + (f" (undecided in {undecided} of {len(known)})" if undecided else "")
                )
    if nowhere:
        yield "; ".join(f"`{ours}` nowhere {verb} {listed(them)}" for ours, them in nowhere.items()) + "."


# -- the paper -------------------------------------------------------------------------------------------------------


def paper(table: Table, run: Run) -> list[Block]:
    shown = [setting for setting, row in table.items() if _is_papers(setting, row)]
    if not shown:
        return []
    _, of_paper, _ = SPACES["LibSpace"]
    columns = SPACES.values()
    counted = [run.lines.get(approach) for _, _, approach in columns]
    rows = [
        ["paper: lines of code", *(f"{lines:,}" for lines, _, _ in columns)],
        ["ours: lines of code", *("not counted" if lines is None else f"{lines:,}" for lines in counted)],
        ["paper: ms", *(f"{number(ms, 0)}, {number(ms / of_paper, 2)} of LibSpace" for _, ms, _ in columns)],
        *(
            [f"ours: ms, {_setting(setting)}", *(_beside(table[setting], approach) for _, _, approach in columns)]
            for setting in shown
        ),
    ]
    return [
        Heading("The paper's table, and ours"),
        Said(
            "The paper's lines of code and median latency for a gang, and what stands beside each of its spaces here: "
            "the median in milliseconds, and its ratio to LibSpace in the same run."
        ),
        Tabular(
            ["", *(f"{space}: `{approach}`" for space, (_, _, approach) in SPACES.items())], rows, f"{PODS}, {RUN}"
        ),
        Said("What differs, so that milliseconds and lines are not to be compared across, and ratios with care:"),
        Points(list(_differences(shown))),
    ]


def _is_papers(setting: Setting, row: Mapping[str, Measured]) -> bool:
    wanted = {approach for _, _, approach in SPACES.values()}
    return setting.workload == "single" and setting.sampling == DEFAULT_SAMPLING and not wanted.isdisjoint(row)


def _beside(row: Mapping[str, Measured], approach: str) -> str:
    if approach not in row:
        return NOTHING
    ratio = ratio_of(row, approach, LIBSPACE)
    median = interval(estimate(row[approach].to_bound), MS)
    return median if ratio is None else f"{median}, {number(ratio.value, 2)} of LibSpace"


def _differences(shown: Sequence[Setting]) -> Iterator[str]:
    yield (
        "The paper's figures are quoted from its slides, which state neither the size of the gang nor the cluster, nor "
        "an interval, nor which of its two implementations (Ray, Kubernetes) was measured."
    )
    if any(setting.cluster == REAL for setting in shown):
        yield (
            "Here etcd, kube-apiserver, kube-scheduler and kube-controller-manager are real, and nodes are kwok's: no "
            "kubelet, no containers. All processes share one machine."
        )
    if any(setting.cluster != REAL for setting in shown):
        yield "The embedded cluster is one process that answers as a control plane does; its times are its own."
    yield (
        "The paper's FrameSpace is a scheduler of its own. Here gangs are placed by an extender beside an unchanged "
        "kube-scheduler, which asks it about each pod over HTTP."
    )
    yield (
        "Lines are physical lines that bear code, without blank lines, comments and docstrings. Ours do more: they "
        "replace ghosts that were lost, recover from the death of whoever made them, preempt, backfill, and guard "
        "against harm. They are no measure of what a policy takes."
    )


# -- tables ----------------------------------------------------------------------------------------------------------


def latencies(settings: Sequence[Setting], table: Table) -> Block:
    """Of the set-ups of one table."""
    head = ["gangs", "approach", "trials", "stuck", "median, ms", "p90, ms", "p99, ms", "running, ms", "ratio to base"]
    rows = []
    for setting, name, found in _each(settings, table):
        row = [setting.short, f"`{name}`", str(len(found.trials)), str(found.stuck)]
        row += [interval(estimate(found.to_bound, each), MS) for each in (MEDIAN, P90, P99)]
        row += [interval(estimate(found.to_running), MS)]
        rows.append([*row, "1" if name == base_of(name, setting.workload) else _ratio(table[setting], name)])
    return Tabular(head, rows, PODS, 2)


def throughput(settings: Sequence[Setting], table: Table) -> Block | None:
    """None where no trial has several gangs."""
    rows = [
        [setting.short, f"`{name}`"]
        + [
            interval(estimate(found.by_trial(value)))
            for value in (lambda t: t.all_done, lambda t: t.gangs_a_second, lambda t: t.pods_a_second)
        ]
        for setting, name, found in _each(settings, table)
        if setting.gangs > 1
    ]
    return Tabular(["gangs", "approach", "all running, s", "gangs/s", "pods/s"], rows, PODS, 2) if rows else None


def _each(settings: Sequence[Setting], table: Table) -> Iterator[tuple[Setting, str, Measured]]:
    return ((setting, name, found) for setting in settings for name, found in table[setting].items())


def _ratio(row: Mapping[str, Measured], name: str) -> str:
    return times(ratio_of(row, name, base_of(name, row[name].setting.workload))) if name in row else NOTHING


def partly(settings: Sequence[Setting], table: Table) -> Block:
    rows = []
    for setting, name, found in _each(settings, table):
        spans = [gang.partly for gang in found.gangs]
        lasting = sum(gang.partly > max(_LASTING, _LASTING_PER_MEMBER * gang.size) for gang in found.gangs)
        row = [setting.short, f"`{name}`", str(len(spans)), interval(estimate(found.partly), MS)]
        rows.append([*row, number(max(spans) * MS), str(lasting)])
    return Tabular(["gangs", "approach", "seen", "median, ms", "longest, ms", "left in part"], rows, PODS, 2)


PARTLY = (
    "How long some members of a gang were bound and others not, as seen from outside. Bindings are single calls, so "
    f"that no approach has 0. **Left in part** are gangs for which that lasted more than {_LASTING:g} s, or "
    f"{_LASTING_PER_MEMBER * MS:g} ms for each member if that is more. For pods that are no gang it is no fault."
)
COSTS = (
    "Means for a gang, from its ask until nothing of it is left; stuck trials count with what they spent. Writes are "
    "those that the API server answered with success, without leases and events; bytes are what these requests "
    "sent; attempts are those of all kube-schedulers, for each member."
)


def costs(settings: Sequence[Setting], table: Table) -> Block | None:
    """None where nothing of it was measured."""
    rows = []
    for setting, name, found in _each(settings, table):
        row = [interval(estimate(found.cost("writes"), mean)), interval(estimate(found.cost("bytes"), mean), 1 / _KIB)]
        row.append(_attempts(found))
        row += [_mean(found.cost(column)) for column in CPU.values()]
        row.append(interval(estimate(found.cost(*CPU.values()), mean), MS))
        if set(row) != {NOTHING}:
            rows.append([setting.short, f"`{name}`", *row])
    head = ["gangs", "approach", "writes", "KiB", "attempts/pod", *(f"{each}, CPU ms" for each in CPU), "all CPU, ms"]
    return Tabular(head, rows, TRIALS, 2) if rows else None


def _mean(sample: Mapping[int, Sequence[float]]) -> str:
    found = estimate(sample, mean)
    return NOTHING if found is None else number(found.value * MS)


def optimistic(table: Table) -> list[Block]:
    """What is checked at bind alone, beside what is reserved at filter; of both, where they were measured."""
    rows = []
    for setting, row in table.items():
        for checks, reserves in PESSIMISTIC.items():
            for name in (reserves, checks) if {checks, reserves} <= row.keys() else ():
                found = row[name]
                cells = [f"{setting.workload}, {_setting(setting)}", f"`{name}`"]
                cells += [interval(estimate(found.conflicts, mean)), _attempts(found)]
                cells += [interval(estimate(found.to_bound, each), MS) for each in (MEDIAN, P90)]
                rows.append([*cells, "1" if name == reserves else times(ratio_of(row, name, reserves))])
    if not rows:
        return []
    said = (
        "Conflicts are binds that the service refused, for whatever reason: what was free when a pod was filtered may "
        "be free no more. Where these were compared the service was started anew before each trial, with the settings "
        "that its approach needs."
    )
    head = ["set-up", "approach", "conflicts/pod", "attempts/pod", "median, ms", "p90, ms", "ratio of medians"]
    return [Heading("Reserved at filter, or checked at bind"), Said(said), Tabular(head, rows, f"{PODS}, {TRIALS}", 2)]


def _attempts(found: Measured) -> str:
    return interval(estimate(found.cost("attempts", each_pod=True), mean))


# -- how it was measured ---------------------------------------------------------------------------------------------


def method(recorded: Recorded, table: Table) -> list[Block]:
    run = recorded.run
    warm_up = sum(trial.repetition < 0 for trial in recorded.trials)
    stuck = sum(found.stuck for row in table.values() for found in row.values())
    counted = len(recorded.trials) - warm_up
    rounds = {
        (setting, trial.repetition) for setting, row in table.items() for m in row.values() for trial, _ in m.trials
    }
    said = [
        f"{many(counted, 'trial')} in {many(len(table), 'set-up')} and {many(len(rounds), 'round')} count; "
        f"{many(warm_up, 'trial')} before them warmed up, and are in the raw files only.",
        f"{many(stuck, 'trial')} did not end in time. A gang that was never placed counts as infinitely late (∞); a "
        "median is finite while more than half of the gangs were placed.",
        f"Intervals: {LEVEL:.0%}, bootstrap percentiles of {RESAMPLES:,} resamples. Whole rounds are drawn, the same "
        "for both sides of a ratio, for approaches take turns within a round. Fewer than "
        f"{ROUNDS} rounds decide nothing.",
        "Of fewer than a hundred gangs p99 is little else than the latest of them, and its interval cannot reach above "
        "the latest that was seen; the same holds of p90 and ten.",
        f"Seed {run.seed}; begun {run.began}.",
    ]
    said += list(_itself(table))
    blocks: list[Block] = [Heading("How it was measured"), Points(said)]
    for title, facts in (("Machine", run.machine), ("Versions", run.versions), ("Plan", run.plan)):
        if facts:
            rows = [[name, _fact(value)] for name, value in facts.items()]
            blocks += [Heading(title, 3), Tabular(["", ""], rows, RUN, 2)]
    return [
        *blocks,
        Heading("Raw files", 3),
        Points(
            [
                f"`{RUN}`: the command, the seed, the machine, versions and the plan.",
                f"`{TRIALS}`: a row for each trial, with its outcome and costs.",
                f"`{PODS}`: a row for each pod, with when it was seen created, bound, running and gone.",
                f"`{LOG}`: what the libraries of ghosts had to say to their operators; nothing here is made of it.",
                "`summary.csv`: every figure of this report, with its interval and how many values are behind it.",
            ]
        ),
        Said("This report is made of them alone, and can be made again without a run."),
    ]


def _itself(table: Table) -> Iterator[str]:
    found = [(setting, ratio_of(row, BASE_AGAIN, BASE)) for setting, row in table.items()]
    known = [(setting, each) for setting, each in found if each is not None]
    if known:
        within = sum(each.low <= 1 <= each.high for _, each in known)
        told = "; ".join(f"{times(each)} ({_setting(setting)})" for setting, each in known)
        said = f"1.00 is within the interval in {within} of {many(len(known), 'set-up')}"
        yield f"The base against itself: {said}: {told}."


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_fact(each) for each in value)
    return str(value)


def _setting(setting: Setting) -> str:
    return f"{setting.where}, {setting.what}"
