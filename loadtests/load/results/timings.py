"""Timings: durations and failures of calls, by name and verb, by window and in total.

Locust reports whole milliseconds, and most of these calls take less than one. Here a time is kept as the number of its
bucket, and each bucket is 0.5 % wider than the one before. The error is at most 0.25 %, and an hour needs no more space
than a minute. Standard library only. A failed call is infinitely late, however soon it failed: otherwise a failing
service would seem fast.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS, LATENCIES, VERBS = "calls.csv", "latencies.csv", "verbs.csv"
REFERENCE = ", reference"
"""Suffix of the name of a call to the reference extender."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
CALLS_HEAD = ("second", "users", "kind", "name", "calls", "failures", "p50", "p90", "p99", "max")
LATENCIES_HEAD = ("kind", "name", "calls", "failures", "a_second", *QUANTILES, "max")
"""Milliseconds; `inf` if the quantile falls on failed calls."""

_VERBS = ("filter", "prioritize", "preempt", "bind")
_OF_A_GANG = "bind, gang"
"""A verb of its own, because it waits for the other members of its gang."""
ENOUGH = 100
"""Calls of a verb for a row: fewer give no p99."""

_WIDER = math.log(1.005)
_LEAST = 1e-3


@dataclass
class Spread:
    """Milliseconds of calls of one name, as a histogram; a failed call is infinite."""

    buckets: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    count: int = 0
    """Includes failed calls."""
    most: float = 0.0

    def note(self, milliseconds: float) -> None:
        if milliseconds == math.inf:
            self.failures += 1
        else:
            self.buckets[round(math.log(max(milliseconds, _LEAST)) / _WIDER)] += 1
        self.count += 1
        self.most = max(self.most, milliseconds)

    def take(self, other: Spread) -> None:
        self.buckets += other.buckets
        self.failures += other.failures
        self.count += other.count
        self.most = max(self.most, other.most)

    def quantile(self, share: float) -> float | None:
        """The least value that this share is at or below; None if too few calls were noted."""
        if not self.count or (share > QUANTILES["p50"] and self.count < round(1 / (1 - share))):
            return None
        rank = math.ceil(share * self.count)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return min(self.most, math.exp(bucket * _WIDER))
        return math.inf


def ratio(ours: float | None, reference: float | None) -> float | None:
    """Returns the ratio of two medians; None if one is missing, or the reference's is infinite."""
    return None if ours is None or reference is None or reference == math.inf else ours / reference


Key = tuple[str, str]
"""Kind of a call (its method, or `pod`, `gang` for several calls) and its name."""
Row = Sequence[str | int | float]


def verb_of(name: str) -> str | None:
    """Returns the verb for a row of VERBS; None for other calls than kube-scheduler's."""
    if name.endswith(REFERENCE):
        return None
    if name.startswith(_OF_A_GANG):
        return _OF_A_GANG
    verb, _, _ = name.partition(",")
    return verb if verb in _VERBS else None


class Timings:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discards all that was noted."""
        self._window: dict[Key, Spread] = {}
        self._all: dict[Key, Spread] = {}
        self._verbs: dict[Key, Spread] = {}

    def note(self, kind: str, name: str, milliseconds: float, *, failed: bool) -> None:
        took = math.inf if failed else milliseconds
        self._window.setdefault((kind, name), Spread()).note(took)
        if (verb := verb_of(name)) is not None:
            self._verbs.setdefault(("verb", verb), Spread()).note(took)

    def window(self, second: float, users: int) -> list[Row]:
        """Returns rows of CALLS for what was noted since the last window."""
        return _rows(second, users, self._taken())

    def verbs(self, second: float, users: int) -> list[Row]:
        """Returns rows of VERBS, for what was noted since the last row of that verb.

        A verb with fewer than ENOUGH calls waits for the next window.
        """
        ready = {key: spread for key, spread in self._verbs.items() if spread.count >= ENOUGH}
        for key in ready:
            del self._verbs[key]
        return _rows(second, users, ready)

    def _taken(self) -> dict[Key, Spread]:
        """Returns the window, and starts the next one."""
        window, self._window = self._window, {}
        for key, spread in window.items():
            self._all.setdefault(key, Spread()).take(spread)
        return window

    def totals(self, seconds: float) -> list[Row]:
        """Returns rows of LATENCIES for all that was noted."""
        self._taken()
        return [
            (
                *key,
                spread.count,
                spread.failures,
                f"{spread.count / seconds:.2f}",
                *(_told(spread.quantile(share)) for share in QUANTILES.values()),
                _told(spread.most),
            )
            for key, spread in sorted(self._all.items())
        ]

    def both(self) -> Iterator[tuple[str, Spread, Spread]]:
        """Yields each call sent to both extenders: its name, ours, and the reference's."""
        self._taken()
        for (kind, name), ours in sorted(self._all.items()):
            if (theirs := self._all.get((kind, name + REFERENCE))) is not None:
                yield name, ours, theirs


def _rows(second: float, users: int, of: Mapping[Key, Spread]) -> list[Row]:
    rows: list[Row] = []
    for key, spread in sorted(of.items()):
        quantiles = (_told(spread.quantile(QUANTILES[each])) for each in ("p50", "p90", "p99"))
        rows.append((f"{second:.1f}", users, *key, spread.count, spread.failures, *quantiles, _told(spread.most)))
    return rows


def _told(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.4g}"


class Files:
    """Writes CALLS and VERBS as they grow, and LATENCIES at the end, to a folder."""

    def __init__(self, folder: Path, timings: Timings) -> None:
        self._folder, self._timings = folder, timings
        self._texts = [(folder / name).open("w", newline="") for name in (CALLS, VERBS)]
        self._calls, self._verbs = (csv.writer(text, lineterminator="\n") for text in self._texts)
        self._calls.writerow(CALLS_HEAD)
        self._verbs.writerow(CALLS_HEAD)

    def window(self, second: float, users: int) -> None:
        self._calls.writerows(self._timings.window(second, users))
        self._verbs.writerows(self._timings.verbs(second, users))
        for text in self._texts:
            text.flush()

    def end(self, second: float) -> None:
        self.window(second, 0)
        for text in self._texts:
            text.close()
        with (self._folder / LATENCIES).open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(LATENCIES_HEAD)
            rows.writerows(self._timings.totals(max(second, 1e-9)))
