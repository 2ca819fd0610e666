"""Report: the results of batches, kept as JSON, and shown as tables of ratios to native.

Every table follows from the JSON, so that a page can be checked against it. Nothing is measured here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2s
from pathlib import Path

import msgspec

from loadtests.native_policies.rules import Verdict
from loadtests.native_policies.work import WAYS, Way, Work

_SHOWN_WHOLE = 24
_EVEN = 1.1
"""A way that is slower by less than this factor is not called slower."""
BEGIN, END = "<!-- measured: written by the tool -->", "<!-- end of what is measured -->"
_IN_WORDS: Mapping[Way, str] = {"native": "native", "extender": "extender", "esl": "ESL"}


class Batch(msgspec.Struct, frozen=True):
    """Seconds; None if the batch was not bound in time."""

    bound: int
    refused: int
    """Pods that the API server refused to create."""
    held: bool
    """Whether the policy's rule held."""
    amount: float
    shape: str
    whole: float | None
    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, verdict: Verdict, refused: int, took: Iterable[float], whole: float | None) -> Batch:
        """`took`: of each bound pod; `whole`: of all expected pods, None if one was not bound."""
        each = sorted(took)
        shape = verdict.shape
        if len(shape) > _SHOWN_WHOLE:
            shape = blake2s(shape.encode(), digest_size=8).hexdigest()
        in_time = whole is not None and bool(each)
        p50, p99 = (_rounded(each[math.ceil(part * len(each)) - 1]) if in_time else None for part in (0.5, 0.99))
        kept = None if whole is None else _rounded(whole)
        return cls(len(each), refused, verdict.held, round(verdict.amount, 2), shape, kept, p50, p99)


Results = dict[str, dict[Way, list[Batch]]]
"""By policy and way, a batch a round."""


class Run(msgspec.Struct, frozen=True):
    nodes: int
    pods: int
    rounds: int
    seed: int
    cores: int
    kubernetes: str
    expected: dict[str, int]
    """By policy, how many pods of a batch should be bound."""
    best: dict[str, str]
    """By policy, the best value of what is measured."""
    results: Results


def _rounded(seconds: float) -> float:
    return round(seconds, 5)


def read(file: Path) -> list[Run]:
    return msgspec.json.decode(file.read_bytes(), type=list[Run]) if file.exists() else []


def written(runs: Sequence[Run]) -> bytes:
    """Encodes one batch a line, so that changes can be read."""
    text = msgspec.json.format(msgspec.json.encode(runs), indent=1)
    return text.replace(b"\n      ", b"").replace(b"\n     }", b"}") + b"\n"


def kept(runs: Iterable[Run], new: Run) -> list[Run]:
    """Merges `new` into the run of these nodes if settings are equal, else replaces that run."""
    by_nodes = {each.nodes: each for each in runs}
    old = by_nodes.get(new.nodes)
    if old is not None and _terms(old) == _terms(new):
        new = msgspec.structs.replace(
            new,
            expected={**old.expected, **new.expected},
            best={**old.best, **new.best},
            results={**old.results, **new.results},
        )
    return [each for _, each in sorted({**by_nodes, new.nodes: new}.items())]


def _terms(run: Run) -> tuple[object, ...]:
    return run.pods, run.rounds, run.seed, run.cores, run.kubernetes


# -- figures -----------------------------------------------------------------------------------------------------------


def _middle(numbers: Sequence[float]) -> tuple[float, float]:
    """Returns the bounds of the middle half."""
    each = sorted(numbers)
    return each[len(each) // 4], each[(3 * len(each)) // 4]


def _times(batches: Sequence[Batch], what: str) -> list[float]:
    return [value for each in batches if (value := getattr(each, what)) is not None]


def _median(batches: Sequence[Batch], what: str = "whole") -> float | None:
    times = _times(batches, what)
    return statistics.median(times) if times else None


def ratio(mine: Sequence[Batch], native: Sequence[Batch], what: str) -> float | None:
    """Returns the ratio of medians over the batches that were bound in time."""
    one, other = _median(mine, what), _median(native, what)
    return None if one is None or other is None else one / other


def spread(mine: Sequence[Batch], native: Sequence[Batch]) -> tuple[float, float] | None:
    """Returns the middle half of the rounds' own ratios of whole batches."""
    each = [
        one.whole / other.whole
        for one, other in zip(mine, native, strict=True)
        if one.whole is not None and other.whole is not None
    ]
    return _middle(each) if each else None


def sound(batches: Sequence[Batch]) -> bool:
    """Whether the rule held in each batch, and all were bound in time."""
    return all(each.held and each.whole is not None for each in batches)


def better(by_way: Mapping[Way, Sequence[Batch]]) -> list[Way]:
    """The fastest sound way, and ways not a tenth slower, or not in the middle half of rounds."""
    right = {way: batches for way, batches in by_way.items() if batches and sound(batches)}
    if not right:
        return []
    fastest = min(right.values(), key=lambda batches: statistics.median(_times(batches, "whole")))
    return [way for way in WAYS if way in right and not _slower(right[way], fastest)]


def _slower(mine: Sequence[Batch], fastest: Sequence[Batch]) -> bool:
    by, between = ratio(mine, fastest, "whole"), spread(mine, fastest)
    return by is not None and by >= _EVEN and (between is None or between[0] > 1)


# -- words -------------------------------------------------------------------------------------------------------------


def _amounts(batches: Sequence[Batch]) -> str:
    numbers = sorted(each.amount for each in batches)
    low, high = numbers[0], numbers[-1]
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _placed(batches: Sequence[Batch] | None, native: Sequence[Batch] | None) -> str:
    if batches is None:
        return "—"
    held = sum(each.held for each in batches)
    said = f"{held} of {len(batches)}: {_amounts(batches)}"
    if refused := max(each.refused for each in batches):
        said += f", {refused} refused"
    if native is not None and batches is not native:
        same = sum(one.shape == other.shape for one, other in zip(batches, native, strict=True))
        said += f"; {same} alike"
    return said


def _native_times(batches: Sequence[Batch], expected: int) -> str:
    whole, p50, p99 = (_median(batches, what) for what in ("whole", "p50", "p99"))
    if whole is None or p50 is None or p99 is None:
        return "never all bound"
    stuck = sum(each.whole is None for each in batches)
    said = f"{whole * 1000:.0f} ms ({p50 * 1000:.0f}, {p99 * 1000:.0f}), {expected / whole:.0f}/s"
    return said + (f"; {stuck} not in time" if stuck else "")


def _ratios(batches: Sequence[Batch] | None, native: Sequence[Batch], expected: int) -> str:
    if batches is None:
        return "—"
    stuck = sum(each.whole is None for each in batches)
    also = f"; {stuck} not in time" if stuck else ""
    whole, p50, p99 = (ratio(batches, native, what) for what in ("whole", "p50", "p99"))
    between = spread(batches, native)
    if whole is None or p50 is None or p99 is None or between is None:
        return _native_times(batches, expected)
    median = _median(batches) or math.inf
    said = f"**{whole:.2f}** [{between[0]:.2f} to {between[1]:.2f}] ({p50:.2f}, {p99:.2f}), {expected / median:.0f}/s"
    return said + also


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _named(work: type[Work]) -> str:
    return f"[{work.name}]({work.page})"


def cache(run: Run, works: Sequence[type[Work]]) -> str:
    """Returns placements and latency of one run."""
    there = [work for work in works if work.name in run.results]
    placements = [_row(["policy", "measured", "at best", *_IN_WORDS.values()]), _row(["---"] * 6)]
    latency = [_row(["policy", "native", "extender", "ESL", "best"]), _row(["---"] * 5)]
    for work in there:
        by_way = run.results[work.name]
        native, expected = by_way["native"], run.expected[work.name]
        cells = [_placed(by_way.get(way), native) for way in WAYS]
        placements.append(_row([_named(work), work.measure, run.best[work.name], *cells]))
        shown = [_native_times(native, expected), *(_ratios(by_way.get(way), native, expected) for way in WAYS[1:])]
        best = ", ".join(_IN_WORDS[way] for way in better(by_way)) or "none"
        latency.append(_row([_named(work), *shown, best]))
    said = f"**{run.nodes} nodes**, batches of about {run.pods} pods, {run.rounds} rounds, seed {run.seed}; "
    said += f"Kubernetes {run.kubernetes}, {run.cores} cores for all of it."
    return f"{said}\n\n" + "\n".join(placements) + "\n\n" + "\n".join(latency) + "\n"


def what(works: Sequence[type[Work]]) -> str:
    """Returns a table of the policies' rules, and how each way expresses them."""
    rows = [_row(["policy", "rule", *_IN_WORDS.values()]), _row(["---"] * 5)]
    rows += [_row([_named(work), work.rule, *(work.said.get(way, "—") for way in WAYS)]) for work in works]
    return "\n".join(rows) + "\n"


def section(runs: Sequence[Run], works: Sequence[type[Work]]) -> str:
    """Returns the part of a page between its two marks."""
    return "\n".join([BEGIN, "", what(works), *(cache(run, works) for run in runs), END])


def with_section(page: str, runs: Sequence[Run], works: Sequence[type[Work]]) -> str:
    """Returns the page with these figures. Raises ValueError if it has no marks."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"the page has no {BEGIN!r} with {END!r} after it")
    return before + section(runs, works) + after
