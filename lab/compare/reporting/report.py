"""Report: a run's folder as Markdown, as one page of HTML, and as plots, from its raw files alone.

    report.md, report.html   the same words, tables and plots; the page includes them all.
    summary.csv              the figures of its tables, and its claims, for other programs.
    plots/                   each plot as SVG and PNG.

Rewritten each time, the same for the same raw files. Needs the extra `lab`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from pathlib import Path

from matplotlib.figure import Figure

from lab.compare.reporting import narrative, plots, tables
from lab.compare.reporting.figures import MEDIAN, Estimate, Sample, Statistic, estimate, mean
from lab.compare.reporting.judging import judge
from lab.compare.reporting.measured import Measured, Setting, Table, measured
from lab.compare.reporting.page import Block, Code, Heading, Picture, Said, as_html, as_markdown
from lab.compare.reporting.summary import summary
from lab.compare.runs import PODS, STUCK, TRIALS, read
from lab.compare.vocabulary import BURST, CHURN, POLICIES, SINGLE, WORKLOADS

REPORT, PAGE, SUMMARY, PLOTS = "report.md", "report.html", "summary.csv", "plots"


def write_report(folder: Path, lines: Mapping[str, int] | None = None) -> list[Path]:
    """Writes the report; returns its files. `lines`: of code by approach, if not the run's own.

    Raises Unreadable, and OSError if a raw file is missing.
    """
    recorded = read(folder)
    if lines is not None:
        recorded = replace(recorded, run=replace(recorded.run, lines=lines))
    table = measured(recorded)
    found = judge(table)
    gallery = Gallery(folder)
    blocks: list[Block] = [
        Heading("Gangs by approach: a comparison", 1),
        Code(_command(recorded.run.command)),
        *narrative.opening(recorded, table),
        *narrative.claims(found),
        *narrative.broken_policies(table),
        *narrative.losses(table),
        *narrative.paper(table, recorded.run),
        *narrative.ratios(table),
        *narrative.optimistic(table),
    ]
    for workload, settings in groupby(table, lambda setting: setting.workload):
        blocks += _workload(workload, list(settings), table, gallery)
    blocks += narrative.method(recorded, table)
    texts = {REPORT: as_markdown(blocks), PAGE: as_html(blocks), SUMMARY: summary(table, found)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [*(folder / name for name in texts), *gallery.written]


class Gallery:
    """The plots of a report; removes an earlier report's plots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / PLOTS
        self._folder.mkdir(exist_ok=True)
        for old in (*self._folder.glob("*.svg"), *self._folder.glob("*.png")):
            old.unlink()
        self.written: list[Path] = []

    def hang(self, figure: Figure, told: str, source: str, *name: str | int) -> Picture:
        drawn = plots.save(figure, self._folder / "-".join(map(str, name)), told)
        self.written += [drawn.svg, drawn.png]
        return Picture(told, drawn.inline, f"{PLOTS}/{drawn.svg.name}", f"{PLOTS}/{drawn.png.name}", source)


def _command(command: str) -> str:
    """The command in lines that are not wider than a page."""
    rows = [""]
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if rows[-1] and len(rows[-1]) + len(quoted) > 100:
            rows.append("   ")
        rows[-1] += f" {quoted}" if rows[-1] else quoted
    return " \\\n".join(rows)


def _workload(workload: str, settings: Sequence[Setting], table: Table, gallery: Gallery) -> Iterator[Block]:
    yield Heading(WORKLOADS.get(workload, workload))
    by_table = [list(each) for _, each in groupby(settings, lambda setting: setting.table)]
    yield from _cache("Until all have run", tables.DONE, tables.done, by_table, table)
    for each in by_table:
        yield Heading(f"Latency: {each[0].where}", 3)
        yield tables.latencies(each, table)
    yield from _cache("Latency of the ordinary pods among them", tables.ORDINARY, tables.ordinary, by_table, table)
    if workload == CHURN:
        yield from _cache("Until whole again", tables.AGAIN, tables.whole_again, by_table, table)
    for setting, where, points in _lines(settings, table, lambda s: s._replace(size=0), lambda s: s.size):
        gangs = "the gang" if setting.gangs == 1 else f"each of {setting.gangs} gangs"
        told = f"Median latency by size of {gangs}: {where}.{_endless(points)}"
        figure = plots.lines(points, "members of a gang")
        yield gallery.hang(figure, told, PODS, "latency-by-size", *_named(setting)[:-1])
    for setting, _, points in _lines(settings, table, lambda s: s._replace(nodes=0), lambda s: s.nodes):
        told = f"Median latency by nodes: {setting.what}, sampling {setting.sampling}.{_endless(points)}"
        gangs = setting.what.replace(" ", "-")
        figure = plots.lines(points, "nodes")
        yield gallery.hang(figure, told, PODS, "latency-by-nodes", workload, setting.cluster, gangs, setting.sampling)
    yield Heading("How latency is distributed", 3)
    for setting in settings:
        samples = {name: [gang.to_bound * tables.MS for gang in m.gangs] for name, m in table[setting].items()}
        told = f"The share of gangs that were bound within a time: {setting.where}, {setting.what}."
        yield gallery.hang(plots.distributions(samples), told, PODS, "cdf", *_named(setting))
    yield from _cache("Whether the policy was kept", tables.KEPT, tables.kept, by_table, table)
    if workload not in POLICIES | {SINGLE, BURST}:
        yield from _room(settings, by_table, table, gallery)
    yield from _cache("Bound in part", tables.PARTLY, tables.partly, by_table, table)
    for setting in settings:
        told = f"How long gangs were bound in part: {setting.where}, {setting.what}."
        yield gallery.hang(_partly(table[setting]), told, PODS, "partly-bound", *_named(setting))
    yield from _cache("What it costs", tables.COSTS, tables.costs, by_table, table)
    for setting in settings:
        if panels := list(_costs(table[setting])):
            told = f"What a {tables.cost_of([setting], table)} costs: {setting.where}, {setting.what}."
            yield gallery.hang(plots.bars(panels), told, TRIALS, "cost", *_named(setting))


def _cache(
    heading: str,
    said: str,
    made: Callable[[Sequence[Setting], Table], Block | None],
    by_table: Sequence[Sequence[Setting]],
    table: Table,
) -> Iterator[Block]:
    """Yields nothing if there is no block."""
    found = [(each[0], block) for each in by_table if (block := made(each, table)) is not None]
    if found:
        yield Heading(heading, 3)
        yield Said(said)
    for first, block in found:
        yield from [Said(f"With {first.where}:")] * (len(by_table) > 1)
        yield block


def _room(
    settings: Sequence[Setting], by_table: Sequence[Sequence[Setting]], table: Table, gallery: Gallery
) -> Iterator[Block]:
    yield from _cache("Room that was held in vain", tables.ROOM, tables.room, by_table, table)
    yield from _cache("Deadlocks", tables.DEADLOCKS, tables.deadlocks, by_table, table)
    for setting in settings:
        row = table[setting]
        if panels := list(_contended(setting, row)):
            told = f"How long it took, and what was held meanwhile: {setting.where}, {setting.what}."
            yield gallery.hang(plots.bars(panels), told, PODS, "room", *_named(setting))
        round_, trials = _round(row)
        if trials:
            told = f"Room over time, in round {round_}: {setting.where}, {setting.what}. White: not held by any pod."
            yield gallery.hang(plots.rooms(trials), told, PODS, "course", *_named(setting))


def _contended(setting: Setting, row: Mapping[str, Measured]) -> Iterator[plots.Bars]:
    figures: list[tuple[str, Callable[[Measured], Sample], Statistic]] = [
        ("held in vain, CPU s, mean", lambda m: m.in_vain, mean),
        ("in a deadlock, s, mean", lambda m: m.deadlocked, mean),
    ]
    if setting.gangs > 1:
        figures.insert(0, ("all have run, s, median", lambda m: m.all_done, MEDIAN))
    for title, sample, statistic in figures:
        known = {name: found for name, m in row.items() if (found := estimate(sample(m), statistic)) is not None}
        if known:
            yield plots.Bars(title, known)


def _round(row: Mapping[str, Measured]) -> tuple[int, dict[str, plots.Room]]:
    """The first round with the most approaches, and the room held in it."""
    found: dict[int, dict[str, plots.Room]] = {}
    for name, m in row.items():
        for trial, _, room in m.trials:
            if room is not None:
                levels = room.levels
                found.setdefault(trial.repetition, {})[name] = plots.Room(
                    [level.since for level in levels],
                    [[level.used, level.between, level.in_vain] for level in levels],
                    trial.outcome == STUCK,
                )
    return max(sorted(found.items()), key=lambda each: len(each[1]), default=(0, {}))


def _named(setting: Setting) -> tuple[str | int, ...]:
    of = setting
    return of.workload, of.cluster, of.nodes, of.sampling, *_times(of), of.size or "sizes"


def _times(setting: Setting) -> tuple[str, ...]:
    return () if setting.gangs == 1 else (f"{setting.gangs}x",)


def _lines(
    settings: Sequence[Setting],
    table: Table,
    besides: Callable[[Setting], Setting],
    along: Callable[[Setting], int],
) -> Iterator[tuple[Setting, str, dict[str, list[tuple[int, Estimate]]]]]:
    """For two or more set-ups that differ only in `along`: the first, and points by approach."""
    for _, each in groupby(sorted(settings, key=lambda s: (besides(s), along(s))), besides):
        these = [setting for setting in each if along(setting)]
        points: dict[str, list[tuple[int, Estimate]]] = {}
        for setting in these:
            for name, found in table[setting].items():
                median = estimate(found.to_bound)
                if median is not None:
                    points.setdefault(name, []).append((along(setting), median.times(tables.MS)))
        if len(these) > 1:
            yield these[0], these[0].where, points


def _endless(points: Mapping[str, Sequence[tuple[int, Estimate]]]) -> str:
    endless = any(found.value < found.high == inf for each in points.values() for _, found in each)
    return " ∞ above a marker: its interval has no upper end." if endless else ""


def _partly(row: Mapping[str, Measured]) -> Figure:
    spans = {name: [gang.partly * tables.MS for gang in found.gangs] for name, found in row.items()}
    medians = {name: median.times(tables.MS) for name, found in row.items() if (median := estimate(found.partly))}
    return plots.bars(
        [
            plots.Bars("bound in part, median, ms", medians),
            plots.Bars("bound in part, longest, ms", {name: [max(each)] for name, each in spans.items() if each}),
        ]
    )


def _costs(row: Mapping[str, Measured]) -> Iterator[plots.Bars]:
    for title, columns, factor, each_pod in (
        ("writes", ["writes"], 1.0, False),
        ("KiB written", ["bytes"], 1 / 1024, False),
        ("attempts for each pod", ["attempts"], 1.0, True),
    ):
        found = {name: estimate(m.cost(*columns, each_pod=each_pod), mean) for name, m in row.items()}
        known = {name: each.times(factor) for name, each in found.items() if each is not None}
        if known:
            yield plots.Bars(title, known)
    parts = [column for column in tables.CPU if any(estimate(m.cost(tables.CPU[column])) for m in row.values())]
    stacked = {}
    for name, m in row.items():
        each = [estimate(m.cost(tables.CPU[part]), mean) for part in parts]
        if any(each):
            stacked[name] = [0.0 if one is None else one.value * tables.MS for one in each]
    if stacked:
        yield plots.Bars("CPU, ms", stacked, parts)
