"""Soak: finds whether the service grew, held more or got slower in a run, from its files alone.

Judged is the time from BEGINS of the load until users begin to leave. At BEGINS the cluster has filled, and the service
has seen every kind of call. `flat` judges each quantity with its own tolerance:

    resident memory       2 %, and 2 MiB at least
    open files            5 %, and 2 at least
    reservations          5 %, and 2 at least: room held for pods that are not bound yet
    pods, gangs           5 %, and 2 at least: all pods and gangs in the ledger
    verbs a second        5 % less; and LEAST_RATE of the requested rate, on average
    latency of a verb     p50: 10 %, and 0.1 ms at least; p99: 25 %, and 1 ms at least

SAMPLES keeps all of it in one file: second, quantity, value.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from loadtests.load.results.flat import Point, Tolerance, Trend, Verdict, judged, trend
from loadtests.load.results.holdings import HOLDINGS
from loadtests.load.results.samples import MEMORY
from loadtests.load.results.timings import VERBS
from loadtests.load.shapes import EDGE

GREW = "grown or slowed under an even load"
SAMPLES = "soak.csv"
BEGINS = 1 / 3
LEAST_RATE = 0.95

RATE = "verbs a second"
_SERVICE = "service"
_MEMORY, _COUNTED = Tolerance(0.02, 2.0), Tolerance(0.05, 2.0)
_QUANTILES = {"p50": Tolerance(0.1, 0.1), "p99": Tolerance(0.25, 1.0)}
_FALLING = Tolerance(0.05, 0.0, falling=True)
_NOT_BOUND = ("reserved", "assumed", "saved")

Row = Mapping[str, str]


@dataclass(frozen=True)
class Quantity:
    """`panel`: its plot, with similar ones. `name`: in that panel. `points`: of the whole run."""

    panel: str
    name: str
    tolerance: Tolerance
    points: Sequence[Point]
    since: float
    until: float

    @property
    def title(self) -> str:
        return self.panel if self.panel == self.name else f"{self.panel}, {self.name}"

    @cached_property
    def trend(self) -> Trend | None:
        return trend(self.points, self.since, self.until)

    @property
    def verdict(self) -> Verdict:
        return judged(self.trend, self.tolerance)

    @property
    def sentence(self) -> str:
        """Returns the verdict, with numbers."""
        if self.trend is None:
            return f"{self.title}: undecided, for there are too few samples"
        return (
            f"{self.title}: {self.verdict.value}: {_signed(self.trend.change)} (95 %: {_signed(self.trend.low)} to"
            f" {_signed(self.trend.high)}) from {short(self.trend.before)} at second {self.since:.0f} until second"
            f" {self.until:.0f}; tolerated is a change of {short(self.tolerance.of(self.trend.before))}"
        )


def short(value: float) -> str:
    """Formats with three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def _signed(value: float) -> str:
    told = short(value)
    return told if told.startswith("-") else f"+{told}"


def quantities(folder: Path, seconds: float) -> list[Quantity]:
    """Returns the quantities to judge of a run whose load lasted `seconds`."""
    since, until = BEGINS * seconds, (1 - EDGE) * seconds
    return [
        Quantity(panel, name, tolerance, points, since, until)
        for panel, name, tolerance, points in (*_of_process(folder), *_of_ledger(folder), *_of_verbs(folder))
    ]


def findings(folder: Path, seconds: float, rate: float) -> list[str]:
    """Returns a sentence for each quantity that got worse, and for a missed rate."""
    found = quantities(folder, seconds)
    worse = [each.sentence for each in found if each.verdict.is_worse]
    return worse + [each for each in (rate_missed(found, rate),) if each]


def told(folder: Path, seconds: float) -> list[str]:
    """Returns a sentence for each quantity, for a terminal."""
    return [each.sentence for each in quantities(folder, seconds)]


def rate_missed(found: Sequence[Quantity], asked: float) -> str:
    """Returns "" if about as many verbs a second were called as requested, else a sentence."""
    if not asked:
        return ""
    values = [
        value for each in found if each.name == RATE for at, value in each.points if each.since <= at < each.until
    ]
    reached = sum(values) / len(values) if values else 0.0
    if reached >= LEAST_RATE * asked:
        return ""
    return f"{RATE}: {short(reached)} on average, and {asked:g} were asked for: too few to be a soak at that rate"


def write_samples(folder: Path, found: Sequence[Quantity]) -> None:
    """Writes SAMPLES, in order of time."""
    rows = sorted((at, each.title, value) for each in found for at, value in each.points)
    with (folder / SAMPLES).open("w", newline="") as file:
        to = csv.writer(file, lineterminator="\n")
        to.writerow(("second", "quantity", "value"))
        to.writerows((f"{at:.1f}", title, f"{value:.6g}") for at, title, value in rows)


# -- from a run's files ----------------------------------------------------------------------------------------------

_Found = Iterator[tuple[str, str, Tolerance, Sequence[Point]]]


def _of_process(folder: Path) -> _Found:
    rows = [row for row in _rows(folder / MEMORY) if row["process"] == _SERVICE]
    for panel, column, tolerance in (
        ("resident memory, MiB", "resident_mib", _MEMORY),
        ("open files", "files", _COUNTED),
    ):
        if points := [(float(row["second"]), float(row[column])) for row in rows if row[column]]:
            yield panel, panel, tolerance, points


def _of_ledger(folder: Path) -> _Found:
    rows = _rows(folder / HOLDINGS)
    if not rows:
        return
    for name, columns, tolerance in (
        ("reservations", _NOT_BOUND, _COUNTED),
        ("pods bound, in the ledger", ("bound",), _COUNTED),
        ("gangs in the ledger", ("gangs",), _COUNTED),
    ):
        yield name, name, tolerance, [(float(row["second"]), sum(float(row[c]) for c in columns)) for row in rows]
    counted = [(float(row["second"]), float(row["verbs"])) for row in rows]
    # A restarted service counts from 0.
    rates = [
        (at, (number - before) / (at - then))
        for (then, before), (at, number) in pairwise(counted)
        if at > then and number >= before
    ]
    yield RATE, RATE, _FALLING, rates


def _of_verbs(folder: Path) -> _Found:
    rows = _rows(folder / VERBS)
    for verb in dict.fromkeys(row["name"] for row in rows):
        for quantile, tolerance in _QUANTILES.items():
            points = [
                (float(row["second"]), float(row[quantile])) for row in rows if row["name"] == verb and row[quantile]
            ]
            if points:
                yield f"{verb}, ms", quantile, tolerance, points


def _rows(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="") as text:
        return list(csv.DictReader(text))
