"""Report: a run's folder as Markdown, as one HTML page and as plots, from its raw files alone.

It is written again each time, equal for equal files. Needs the extra `report`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from extender.shipped.errors import WrongUse
from lab.compare.reporting import plots
from lab.compare.reporting.page import Block, Code, Heading, Points, Said, Tabular, as_html, as_markdown
from lab.compare.reporting.report import Gallery
from loadtests.load import soak
from loadtests.load.results.flat import Verdict
from loadtests.load.results.samples import MEMORY
from loadtests.load.results.timings import CALLS, ENOUGH, LATENCIES, QUANTILES, REFERENCE, ratio
from loadtests.load.run import RUN
from loadtests.load.shapes import SOAK

REPORT, PAGE, PLOTS = "report.md", "report.html", "plots"
FAILURES, LOCUSTS_PAGE = "locust_failures.csv", "locust.html"

_UNITS = ("pod", "gang")
"""Kinds of rows that are not single calls, but results of several."""
_INFINITELY_LATE = "counts as infinitely late (∞) in the percentiles, however soon that was known."
_MOST_LINES = 6
_SHOWN = 20
Row = Mapping[str, str]


def write_report(folder: Path) -> list[Path]:
    """Writes and returns the files, Markdown and page first. Raises WrongUse if there is no run."""
    run = _run(folder)
    latencies = _latency_rows(folder)
    gallery = Gallery(folder)
    blocks: list[Block] = [
        Heading("Load test", 1),
        Code(run["command"]),
        *_outcome(run),
        *_soak(run, folder, gallery),
        *_latencies(latencies),
        *_ratios(latencies),
        *_failures(_rows(folder / FAILURES)),
        *_over_time(_rows(folder / CALLS), latencies, gallery),
        *_processes(_rows(folder / MEMORY), run["load_seconds"], gallery),
        *_where(run, folder),
    ]
    texts = {REPORT: as_markdown(blocks), PAGE: as_html(blocks)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [*(folder / name for name in texts), *gallery.written]


def summary(folder: Path) -> str:
    """Returns the latencies, for a terminal."""
    head, rows = _table(_latency_rows(folder))
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if n < 1 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def _run(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / RUN).read_text())
    except (OSError, ValueError) as error:
        raise WrongUse(f"{folder / RUN}: no run is told there: {error}") from None
    return found


def _latency_rows(folder: Path) -> list[Row]:
    """Returns rows of pods and gangs first, then by name."""
    return sorted(_rows(folder / LATENCIES), key=lambda row: (row["kind"] not in _UNITS, row["name"]))


def _rows(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


# -- what came out ---------------------------------------------------------------------------------------------------


def _outcome(run: Mapping[str, Any]) -> Iterator[Block]:
    plan, found = run["plan"], run["findings"]
    grew = len(found.get(soak.GREW, ()))
    wrong = sum(len(each) for each in found.values()) - grew
    calls = "No call failed." if run["locust"] == 0 else "**Calls failed, or Locust did.**"
    holds = "every invariant holds" if wrong == 0 else f"**{wrong} findings: invariants do not hold**"
    where = f"the service at {plan['host']}" if plan["host"] else _cluster(plan)
    asked = f"{plan['users']} users at most, {plan['shape']}, {plan['seconds']:g} s"
    if plan["page"]:
        asked = "Load as it was set on Locust's page"
    yield Said(
        f"{asked}, on {where}: {', '.join(plan['who'])}. {calls} At its end {holds}."
        + f" **{grew} of what is to be flat is not.**" * bool(grew)
    )
    yield Heading("Invariants")
    yield Tabular(
        ["checked when the load had ended", "found"], [[f"{name}", str(len(each))] for name, each in found.items()], RUN
    )
    if wrong or grew:
        told = [f"**{name}**: {one}" for name, each in found.items() for one in each]
        yield Points(told[:_SHOWN] + [f"and {len(told) - _SHOWN} more"] * (len(told) > _SHOWN))
    if run["seen"]:
        yield Said("What a process of its own has seen, which watched pods and nodes all the time:")
        yield Tabular(["", ""], [[name, f"{value:,}"] for name, value in run["seen"].items()], RUN)
    if run["settled_after"] is not None:
        yield Said(f"All checks took {run['settled_after']:g} s; the service checks itself every half a minute.")


def _cluster(plan: Mapping[str, Any]) -> str:
    return f"{'a real control plane' if plan['real'] else 'the embedded cluster'} of {plan['nodes']:,} nodes"


def _latencies(rows: Sequence[Row]) -> Iterator[Block]:
    for title, said, these in (
        (
            "Pods and gangs",
            "From the first create to the last Binding answered, with all that lies between: the API server, filter,"
            f" prioritize, bind, and for gangs the wait for each other. One that was never bound {_INFINITELY_LATE}",
            [row for row in rows if row["kind"] in _UNITS],
        ),
        (
            "Calls",
            "As Locust has them, whose own time is in all of them. **Live** are calls for pods that exist; the time of"
            f" a gang's bind is mostly that its members wait for each other. One that failed {_INFINITELY_LATE}",
            [row for row in rows if row["kind"] not in _UNITS],
        ),
    ):
        if these:
            head, shown = _table(these)
            yield from (Heading(title), Said(said), Tabular(head, shown, LATENCIES))


def _table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    head = ["", "number", "failed", "a second", *(f"{each}, ms" for each in (*QUANTILES, "max"))]
    shown = [
        [row["name"], f"{int(row['calls']):,}", row["failures"], _short(row["a_second"])]
        + [_short(row[each]) for each in (*QUANTILES, "max")]
        for row in rows
    ]
    return head, shown


def _short(number: str) -> str:
    if not number:
        return ""
    value = float(number)
    if value == math.inf:
        return "∞"
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.3g}'):g}"


def _ratios(rows: Sequence[Row]) -> Iterator[Block]:
    named = {row["name"]: row for row in rows if row["p50"]}
    shown = []
    for name, ours in named.items():
        if theirs := named.get(name + REFERENCE):
            found = ratio(float(ours["p50"]), float(theirs["p50"]))
            told = "–" if found is None else "∞" if found == math.inf else f"{found:.2f}"
            sides = ([_short(each["p50"]), f"{int(each['calls']):,}", each["failures"]] for each in (ours, theirs))
            shown.append([name, *chain.from_iterable(sides), told])
    if shown:
        yield Heading("Beside the reference extender")
        yield Said(
            "Medians of the same calls in the same run, and the one divided by the other. The reference is a plain"
            " extender in Go, which remembers, watches and writes nothing. Locust's own time is in both. Calls that"
            " failed are infinitely late here too; where the reference's median is, there is no ratio."
        )
        head = ["", "ours, ms", "calls", "failed", "reference, ms", "calls", "failed", "ratio"]
        yield Tabular(head, shown, LATENCIES)


def _failures(rows: Sequence[Row]) -> Iterator[Block]:
    if rows:
        yield Heading("Calls that failed")
        shown = [[row["Name"], row["Error"], row["Occurrences"]] for row in rows[:_SHOWN]]
        yield Tabular(["", "error", "times"], shown, FAILURES, 2)


# -- whether it grew -------------------------------------------------------------------------------------------------


def _soak(run: Mapping[str, Any], folder: Path, gallery: Gallery) -> Iterator[Block]:
    found = soak.quantities(folder, run["load_seconds"]) if run["plan"]["shape"] == SOAK else []
    if not found:
        return
    soak.write_samples(folder, found)
    verdicts = {verdict: sum(each.verdict is verdict for each in found) for verdict in Verdict}
    yield Heading("Flat?")
    yield Said(", ".join(f"**{count} {verdict.value}**" for verdict, count in verdicts.items() if count) + ".")
    yield Said(
        f"Judged are seconds {found[0].since:.0f} to {found[0].until:.0f}, when the cluster had filled and before users"
        " began to leave. **Change** is what the slope of Theil and Sen makes in that time, with a 95 % bootstrap"
        " interval; it is flat, or worse, only if the whole interval is below, or above, what is tolerated, and else"
        f" undecided. The service is asked every few seconds; a verb has a row for {ENOUGH} calls, at the earliest."
    )
    if missed := soak.rate_missed(found, run["plan"].get("rate", 0)):
        yield Said(f"**{missed}.**")
    head = ["", "", "before", "change", "from", "to", "tolerated"]
    yield Tabular(head, [_judged(each) for each in found], soak.SAMPLES, 2)
    panels = [
        plots.Course(
            panel,
            {each.name if each.name != panel else "": each.points for each in these},
            trends=[each.trend.line for each in these if each.trend],
        )
        for panel in dict.fromkeys(each.panel for each in found)
        if (these := [each for each in found if each.panel == panel])
    ]
    told = "What was sampled over the whole run, from zero. Shaded is what was judged, with the slope that was found."
    yield gallery.hang(plots.courses(panels, columns=2), told, soak.SAMPLES, "soak")


def _judged(of: soak.Quantity) -> list[str]:
    if of.trend is None:
        return [of.title, of.verdict.value, "", "", "", "", ""]
    numbers = (of.trend.before, of.trend.change, of.trend.low, of.trend.high, of.tolerance.of(of.trend.before))
    return [of.title, of.verdict.value, *map(soak.short, numbers)]


# -- over time -------------------------------------------------------------------------------------------------------


def _over_time(rows: Sequence[Row], latencies: Sequence[Row], gallery: Gallery) -> Iterator[Block]:
    if not rows:
        return
    calls = [row for row in rows if row["kind"] not in _UNITS]
    often = [row["name"] for row in sorted(latencies, key=lambda row: -int(row["calls"])) if row["kind"] not in _UNITS]
    units = [row["name"] for row in latencies if row["kind"] in _UNITS]
    seconds = sorted({float(row["second"]) for row in rows})
    lasted = {at: at - before for before, at in zip([0.0, *seconds], seconds, strict=False)}

    def total(row_of: Iterable[Row], column: str) -> list[tuple[float, float]]:
        found = dict.fromkeys(seconds, 0.0)
        for row in row_of:
            found[float(row["second"])] += float(row[column])
        return [(at, number / lasted[at]) for at, number in found.items() if lasted[at] > 0]

    yield Heading("Over time")
    users = {float(row["second"]): float(row["users"]) for row in rows}
    figure = plots.courses(
        [
            # The last window is written when all users have gone.
            plots.Course("users", {"users": sorted(users.items())[:-1]}),
            plots.Course("calls a second", {"all": total(calls, "calls"), "failed": total(calls, "failures")}),
        ]
    )
    yield gallery.hang(figure, "Users, and calls a second.", CALLS, "throughput")
    named = [*units, *often][:_MOST_LINES]
    panels = [
        plots.Course(f"{title}, ms", _with_infinite_told(series), ratios=True)
        # A window of a second has too few calls for quantiles in between.
        for title, column in (("median", "p50"), ("longest", "max"))
        if (series := _series(rows, named, "second", "name", column))
    ]
    if panels:
        whom = f"{'pods, gangs and ' if units else ''}the most frequent calls"
        told = f"How long it took: the median and the longest of each window, of {whom}; ∞ is not drawn, but counted."
        yield gallery.hang(plots.courses(panels), told, CALLS, "latency")


def _series(
    rows: Sequence[Row],
    names: Sequence[str],
    along: str,
    by: str,
    column: str,
    value: Callable[[float], float] = lambda each: each,
) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for row in rows:
        if row[by] in found and row[column]:
            found[row[by]].append((float(row[along]), value(float(row[column]))))
    return {name: points for name, points in found.items() if points}


def _with_infinite_told(
    series: Mapping[str, Sequence[tuple[float, float]]],
) -> dict[str, Sequence[tuple[float, float]]]:
    """Infinite points interrupt a line; its name gives their number."""
    found: dict[str, Sequence[tuple[float, float]]] = {}
    for name, points in series.items():
        infinite = sum(value == math.inf for _, value in points)
        found[f"{name} (∞ in {infinite} of {len(points)})" if infinite else name] = points
    return found


def _processes(rows: Sequence[Row], load: float, gallery: Gallery) -> Iterator[Block]:
    names = list(dict.fromkeys(row["process"] for row in rows))
    memory = _series(rows, names, "second", "process", "resident_mib")
    files = _series(rows, names, "second", "process", "files")
    cpu = {name: _rate(points) for name, points in _series(rows, names, "second", "process", "cpu_seconds").items()}
    if not memory:
        return
    yield Heading("Memory, files and CPU")
    yield Said(
        "Of the processes, from the beginning of the load until all checks were done. **Growth** is by the line of"
        " least squares through the second half of the load, and means little for a load of a minute."
    )
    head = ["", "first, MiB", "most, MiB", "last, MiB", "growth, MiB/h", "most files", "CPU, s"]
    shown = []
    for name, points in memory.items():
        values = [value for _, value in points]
        opened = [f"{max(value for _, value in files[name]):g}" if name in files else ""]
        spent = _series(rows, [name], "second", "process", "cpu_seconds").get(name, [])
        used = [f"{spent[-1][1] - spent[0][1]:.1f}" if spent else ""]
        sizes = [f"{each:.1f}" for each in (values[0], max(values), values[-1])]
        shown.append([name, *sizes, f"{_growth([each for each in points if each[0] <= load]):+.1f}", *opened, *used])
    yield Tabular(head, shown, MEMORY)
    panels = [
        plots.Course(title, series)
        for title, series in (("resident memory, MiB", memory), ("open files", files), ("CPU, cores", cpu))
        if any(series.values())
    ]
    yield gallery.hang(plots.courses(panels), "Resident memory, open files and CPU over time.", MEMORY, "memory")


def _rate(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(at, (value - before) / (at - then)) for (then, before), (at, value) in pairwise(points) if at > then]


def _growth(points: Sequence[tuple[float, float]]) -> float:
    """Returns the growth in an hour, by the line of least squares through the second half."""
    half = points[len(points) // 2 :]
    if not half:
        return 0.0
    middle = sum(at for at, _ in half) / len(half)
    spread = sum((at - middle) ** 2 for at, _ in half)
    mean = sum(value for _, value in half) / len(half)
    return 3600 * sum((at - middle) * (value - mean) for at, value in half) / spread if spread else 0.0


def _where(run: Mapping[str, Any], folder: Path) -> Iterator[Block]:
    machine, versions = run["machine"], run["versions"]
    yield Heading("Where it ran")
    yield Points(
        [
            f"Began {run['began']}, took {run['seconds']:g} s with starting and checking.",
            f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB, {machine['system']}."
            f" Its load average was {run['load_average']:g} when this began. All processes share it, Locust too: where"
            " its CPU is near one core, Locust is what is measured.",
            ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
            *([f"Locust's own report is `{LOCUSTS_PAGE}`, beside this one."] * (folder / LOCUSTS_PAGE).exists()),
        ]
    )
