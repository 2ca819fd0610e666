"""Timings: how long calls took, by name, and how many failed: window by window, and in all. Standard library only.

Locust tells whole milliseconds, and most of these calls take less than one. Here a time is kept as the number of its
bucket, each half a percent wider than the one before: what is told is off by a quarter of a percent, and an hour takes
no more room than a minute.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

CALLS, LATENCIES = "calls.csv", "latencies.csv"
REFERENCE = ", reference"
"""With this at its end, the name of a call that the reference extender was asked."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
CALLS_HEAD = ("second", "users", "kind", "name", "calls", "failures", "p50", "p90", "p99", "max")
LATENCIES_HEAD = ("kind", "name", "calls", "failures", "a_second", *QUANTILES, "max")
"""Milliseconds; of calls that did not fail."""

_WIDER = math.log(1.005)
_LEAST = 1e-3


@dataclass
class Spread:
    """Milliseconds, as a histogram."""

    buckets: Counter[int] = field(default_factory=Counter)
    count: int = 0
    most: float = 0.0

    def note(self, milliseconds: float) -> None:
        self.buckets[round(math.log(max(milliseconds, _LEAST)) / _WIDER)] += 1
        self.count += 1
        self.most = max(self.most, milliseconds)

    def take(self, other: Spread) -> None:
        self.buckets += other.buckets
        self.count += other.count
        self.most = max(self.most, other.most)

    def quantile(self, share: float) -> float | None:
        """The least that so many are at or below; None of nothing, and where one in so many was not even noted."""
        if share > QUANTILES["p50"] and self.count < round(1 / (1 - share)):
            return None
        rank = math.ceil(share * self.count)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return min(self.most, math.exp(bucket * _WIDER))
        return None


@dataclass
class Series:
    """Calls of one name."""

    spread: Spread = field(default_factory=Spread)
    failures: int = 0

    @property
    def calls(self) -> int:
        return self.spread.count + self.failures

    def take(self, other: Series) -> None:
        self.spread.take(other.spread)
        self.failures += other.failures


Key = tuple[str, str]
"""Kind of a call (its method, or `pod`, `gang` for what comes of several) and its name."""
Row = Sequence[str | int | float]


class Timings:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Nothing was noted."""
        self._window: dict[Key, Series] = {}
        self._all: dict[Key, Series] = {}

    def note(self, kind: str, name: str, milliseconds: float, *, failed: bool) -> None:
        series = self._window.setdefault((kind, name), Series())
        if failed:
            series.failures += 1
        else:
            series.spread.note(milliseconds)

    def window(self, second: float, users: int) -> list[Row]:
        """Rows of CALLS for what was noted since the last window."""
        rows: list[Row] = []
        for key, series in sorted(self._taken().items()):
            quantiles = (_told(series.spread.quantile(QUANTILES[each])) for each in ("p50", "p90", "p99"))
            rows.append((f"{second:.1f}", users, *key, series.calls, series.failures, *quantiles, _most(series)))
        return rows

    def _taken(self) -> dict[Key, Series]:
        """The window, which is over."""
        window, self._window = self._window, {}
        for key, series in window.items():
            self._all.setdefault(key, Series()).take(series)
        return window

    def totals(self, seconds: float) -> list[Row]:
        """Rows of LATENCIES for all that was noted."""
        self._taken()
        return [
            (
                *key,
                series.calls,
                series.failures,
                f"{series.calls / seconds:.2f}",
                *(_told(series.spread.quantile(share)) for share in QUANTILES.values()),
                _most(series),
            )
            for key, series in sorted(self._all.items())
        ]

    def ratios(self) -> Iterator[tuple[str, float, float]]:
        """Of every call that both were asked: its name, our median, and the reference's."""
        self._taken()
        for (kind, name), ours in sorted(self._all.items()):
            theirs = self._all.get((kind, name + REFERENCE))
            medians = [each.spread.quantile(0.5) if each else None for each in (ours, theirs)]
            if medians[0] is not None and medians[1] is not None:
                yield name, medians[0], medians[1]


def _most(series: Series) -> str:
    return _told(series.spread.most if series.spread.count else None)


def _told(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.4g}"


class Files:
    """CALLS as it grows, and LATENCIES in the end, in a folder."""

    def __init__(self, folder: Path, timings: Timings) -> None:
        self._folder, self._timings = folder, timings
        self._calls: TextIO = (folder / CALLS).open("w", newline="")
        self._rows = csv.writer(self._calls, lineterminator="\n")
        self._rows.writerow(CALLS_HEAD)

    def window(self, second: float, users: int) -> None:
        self._rows.writerows(self._timings.window(second, users))
        self._calls.flush()

    def end(self, second: float) -> None:
        self.window(second, 0)
        self._calls.close()
        with (self._folder / LATENCIES).open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(LATENCIES_HEAD)
            rows.writerows(self._timings.totals(max(second, 1e-9)))
