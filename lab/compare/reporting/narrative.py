"""Narrative: a report's text and tables, all computed from the figures. Pure.

It omits whatever was not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from lab.compare.reporting.figures import (
    LEVEL,
    MEDIAN,
    P90,
    RESAMPLES,
    ROUNDS,
    Estimate,
    NeverInPart,
    Verdict,
    estimate,
    mean,
)
from lab.compare.reporting.judging import Judged, not_kept
from lab.compare.reporting.measured import Measured, Setting, Table, compared, ratio_of
from lab.compare.reporting.page import Block, Heading, Points, Said, Tabular
from lab.compare.reporting.tables import CPU, MS, attempts, base_told, to_base
from lab.compare.reporting.wording import NOTHING, interval, listed, many, number, times
from lab.compare.runs import DEFAULT_SAMPLING, LOG, PODS, REAL, RUN, STUCK, TRIALS, Recorded, Run
from lab.compare.vocabulary import (
    APPROACHES,
    ARRIVALS,
    BASE,
    BASE_AGAIN,
    BY_POLICY,
    CHURN,
    LIBSPACE,
    OTHERS,
    OURS,
    PESSIMISTIC,
    POLICIES,
    SINGLE,
    SPACES,
    TRACE,
    WORKLOADS,
    base_of,
    in_order,
)

_Compared = Callable[[Mapping[str, Measured], str, str], Estimate | None]
_COLUMNS = 5
"""The most set-ups beside each other on the width of a page."""


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
    """Describes each approach, for set-ups of other policies (`of_policies`) or of gangs."""
    rows = [row for setting, row in table.items() if (setting.workload in POLICIES) == of_policies]
    names = in_order({name for row in rows for name in row}, known)
    if not names:
        return []
    points = Points([f"`{name}`: {known[name]}" if name in known else f"`{name}`" for name in names])
    return [*[Said("Where a policy other than gangs is asked for:")] * of_policies, points]


def claims(found: Sequence[Judged]) -> list[Block]:
    if not found:
        return []
    rows = [[text, where, f"**{verdict}**", figure] for text, where, verdict, figure in verdicts(found)]
    against = [f"{said} ({each.setting.told})" for each in found for said in each.against]
    listing: list[Block] = [Said("Left in part:"), Points(against)] if against else []
    return [
        Heading("Claims"),
        Said(
            "A claim holds, or flips, where the whole interval of the ratio is on one side of what it says; "
            "otherwise this run does not decide it. The claim that no gang is left in part flips with the first that "
            "is."
        ),
        Tabular(["claim", "set-up", "verdict", "ratio, or gangs"], rows, PODS, 3),
        *listing,
    ]


def verdicts(found: Sequence[Judged]) -> Iterator[tuple[str, str, str, str]]:
    """Claim, set-up, verdict and figure; a claim about each gang is one row for all set-ups."""
    for claim, of_claim in groupby(found, lambda each: each.claim):
        each = list(of_claim)
        if isinstance(claim, NeverInPart):
            left, gangs = sum(len(one.against) for one in each), sum(one.values for one in each)
            verdict = Verdict.FLIPS if left else Verdict.HOLDS
            yield claim.text, many(len(each), "set-up"), verdict.value, f"{left:,} of {gangs:,}"
        else:
            yield from ((claim.text, one.setting.told, one.verdict.value, times(one.found)) for one in each)


def broken_policies(table: Table) -> list[Block]:
    """Policies other than gangs that an approach should have kept and did not."""
    points = [
        f"`{each.approach}`: {WORKLOADS.get(each.setting.workload, each.setting.workload)}, {_column(each.setting)}: "
        f"**not kept in {each.broken} of {many(each.judged, 'trial')}**"
        for each in not_kept(table)
    ]
    return [Heading("Policies that were not kept"), Points(points)] if points else []


def ratios(table: Table) -> list[Block]:
    """Ratios of each approach to its base, all set-ups of a workload together."""
    blocks: list[Block] = []
    for workload, each in groupby((setting for setting, row in table.items() if len(row) > 1), lambda s: s.workload):
        settings = list(each)
        names = in_order({name for setting in settings for name in table[setting]}, APPROACHES)
        for figure, told in _most_telling(settings[0]):
            rows_of = {name: [to_base(table[setting], name, figure) for setting in settings] for name in names}
            head = f"{WORKLOADS.get(workload, workload)}: {told}, as a ratio to {base_told(settings, table)}"
            for at in range(0, len(settings), _COLUMNS):
                shown = {name: cells[at : at + _COLUMNS] for name, cells in rows_of.items()}
                rows = [[f"`{name}`", *cells] for name, cells in shown.items() if not set(cells) <= {NOTHING, "1"}]
                blocks.append(Tabular([head, *map(_column, settings[at : at + _COLUMNS])], rows, PODS))
    if not blocks:
        return []
    said = "Of medians, in the same rounds, each table to the approach that it names"
    if any(base_of(BASE, setting.workload) == LIBSPACE for setting in table):
        said += f". It is `{LIBSPACE}` where gangs contend for room, for pods that are no gangs block each other there"
    return [Heading("All ratios"), Said(f"{said}."), *blocks]


def _column(setting: Setting) -> str:
    return f"{setting.where}, {setting.what}"


def _most_telling(setting: Setting) -> Sequence[tuple[str, str]]:
    """The figures of a workload that matter most, and their names."""
    latency, all_done = ("latency", "latency"), ("all_done", "until all have run")
    if setting.workload == CHURN:
        return [("whole_again", "until whole again")]
    if setting.workload == ARRIVALS:
        return [all_done, latency]
    return [all_done] if _contend(setting) and setting.workload != TRACE else [latency]


def _contend(setting: Setting) -> bool:
    """Whether it has several gangs."""
    return setting.gangs > 1 and setting.workload not in POLICIES


def losses(table: Table) -> list[Block]:
    """Where this project's approaches lose, and a gang's cost compared to pods without one."""
    costs: list[tuple[str, _Compared]] = [
        ("takes longer than", compared),
        ("writes more than", _writes),
        ("takes more CPU than", _cpu),
    ]
    contended = {setting: row for setting, row in table.items() if _contend(setting)}
    # If gangs contend, pods without gangs block each other, and their costs mean nothing.
    alone = {setting: row for setting, row in table.items() if setting not in contended}
    # The trace itself determines how long it takes.
    to_end = {setting: row for setting, row in contended.items() if setting.workload != TRACE}
    done: list[tuple[str, _Compared]] = [("is later with all of them than", partial(compared, figure="all_done"))]
    room: list[tuple[str, _Compared]] = [("holds more in vain than", partial(compared, figure="in_vain"))]
    blocks: list[Block] = []
    for heading, points in (
        (
            Heading("Where ours loses"),
            [*_points(table, OTHERS, costs), *_points(to_end, OTHERS, done), *_points(contended, OTHERS, room)],
        ),
        (Heading("What a gang costs beside pods that are none", 3), _points(alone, (BASE,), costs)),
    ):
        if points:
            blocks += [heading, Points(points)]
    if blocks:
        said = "By median latency, and by the mean of writes and of CPU seconds, where the whole interval says so; by "
        said += "these means only where neither had a stuck trial, and no ordinary pods are in them."
        if contended:
            said += " Where gangs contend also by the median time until all have run, and by the mean of what is held "
            said += "in vain."
        blocks.insert(1, Said(said))
    return blocks


def _points(table: Table, others: Sequence[str], measures: Sequence[tuple[str, _Compared]]) -> list[str]:
    return [point for verb, ratio in measures for point in _comparisons(table, others, ratio, verb)]


def _writes(row: Mapping[str, Measured], approach: str, base: str) -> Estimate | None:
    return _costing(row, approach, base, "writes")


def _cpu(row: Mapping[str, Measured], approach: str, base: str) -> Estimate | None:
    return _costing(row, approach, base, *CPU.values())


def _costing(row: Mapping[str, Measured], approach: str, base: str, *columns: str) -> Estimate | None:
    """None also if it would measure a stuck trial's watched time, or ordinary pods."""
    if any(row[each].stuck or row[each].has_ordinary for each in (approach, base) if each in row):
        return None
    return ratio_of(row, approach, base, lambda each: each.cost(*columns), mean)


def _comparisons(table: Table, others: Sequence[str], ratio: _Compared, verb: str) -> Iterator[str]:
    """A point for each approach that loses somewhere; one for all that do not."""
    nowhere: dict[str, list[str]] = {}
    for ours in OURS:
        for other in others:
            found = [(setting, ratio(row, ours, other)) for setting, row in table.items()]
            known = [(setting, each) for setting, each in found if each is not None]
            lost = [(setting, each) for setting, each in known if each.above(1)]
            won = sum(each.below(1) for _, each in known)
            undecided = len(known) - len(lost) - won - sum(each.low == each.high == 1 for _, each in known)
            if lost:
                where, worst = max(lost, key=lambda each: each[1].value)
                said = f"`{ours}` {verb} `{other}` in {len(lost)} of {many(len(known), 'set-up')}"
                said += f": by a factor of {'up to ' if len(lost) > 1 else ''}{times(worst)}"
                rest = [f"less in {won}"] * bool(won) + [f"undecided in {undecided}"] * bool(undecided)
                yield f"{said} with {where.told}{'; ' if rest else ''}{listed(rest)}."
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
            [f"ours: ms, {setting.told}", *(_beside(table[setting], approach) for _, _, approach in columns)]
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
    return setting.workload == SINGLE and setting.sampling == DEFAULT_SAMPLING and not wanted.isdisjoint(row)


def _beside(row: Mapping[str, Measured], approach: str) -> str:
    if approach not in row:
        return NOTHING
    ratio = compared(row, approach, LIBSPACE)
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


def optimistic(table: Table) -> list[Block]:
    """Approaches that check only at bind, beside those that reserve at filter, if both ran."""
    rows = []
    for setting, row in table.items():
        for checks, reserves in PESSIMISTIC.items():
            for name in (reserves, checks) if {checks, reserves} <= row.keys() else ():
                found = row[name]
                cells = [f"{setting.workload}, {_column(setting)}", f"`{name}`"]
                cells += [interval(estimate(found.conflicts, mean)), attempts(found)]
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


# -- how it was measured ---------------------------------------------------------------------------------------------


def method(recorded: Recorded, table: Table) -> list[Block]:
    run = recorded.run
    warm_up = sum(trial.repetition < 0 for trial in recorded.trials)
    stuck = [trial for trial in recorded.trials if trial.outcome == STUCK]
    warm_stuck = sum(trial.repetition < 0 for trial in stuck)
    counted = len(recorded.trials) - warm_up
    rounds = {
        (setting, trial.repetition) for setting, row in table.items() for m in row.values() for trial, *_ in m.trials
    }
    said = [
        f"{many(counted, 'trial')} in {many(len(table), 'set-up')} and {many(len(rounds), 'round')} count; "
        f"{many(warm_up, 'trial')} before them warmed up, and are in no figure; but a gang that is left in part or a "
        "policy that is not kept is found in them as well.",
        f"{many(len(stuck), 'trial')} did not end in time, {warm_stuck:,} of them while warming up. A gang that was "
        "never placed counts as infinitely late (∞); a median is finite while more than half of the gangs were placed.",
        f"Intervals: {LEVEL:.0%}, bootstrap percentiles of {RESAMPLES:,} resamples. Whole rounds are drawn, the same "
        "for both sides of a ratio, for approaches take turns within a round. Fewer than "
        f"{ROUNDS} rounds decide nothing. Intervals of means are expanded as Student's t asks for with so few rounds "
        "(Hesterberg 2015); without that they would be too narrow.",
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
                "`summary.csv`, made of them: the figures of the tables by workload, their ratios to the base, and the "
                "claims, with their intervals, and how many values and rounds are behind each. What is told beside "
                "them of where ours loses is not in it.",
            ]
        ),
        Said("This report is made of them alone, and can be made again without a run."),
    ]


def _itself(table: Table) -> Iterator[str]:
    found = [(setting, compared(row, BASE_AGAIN, BASE)) for setting, row in table.items()]
    known = [(setting, each) for setting, each in found if each is not None]
    if known:
        within = sum(each.low <= 1 <= each.high for _, each in known)
        told = "; ".join(f"{times(each)} ({setting.told})" for setting, each in known)
        said = f"1.00 is within the interval in {within} of {many(len(known), 'set-up')}"
        yield f"The base against itself: {said}: {told}."


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_fact(each) for each in value)
    return str(value)
