"""Wording: figures as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan

from lab.compare.reporting.figures import Estimate

NOTHING = "–"
"""Shown if nothing was measured."""
_HUNDRED, _TEN = 100, 10


def number(value: float, digits: int | None = None) -> str:
    """With `digits` decimals; None: with three significant digits, or all of a larger number."""
    if isnan(value):
        return NOTHING
    if abs(value) == inf:
        return "∞" if value > 0 else "-∞"
    if digits is None:
        digits = 0 if value >= _HUNDRED or value == int(value) else 1 if value >= _TEN else 2
    return f"{value:,.{digits}f}"


def interval(found: Estimate | None, factor: float = 1.0, digits: int | None = None) -> str:
    """As `381 (370–395)`; without brackets if they would say no more."""
    if found is None or isnan(found.value):
        return NOTHING
    low, high = number(found.low * factor, digits), number(found.high * factor, digits)
    value = number(found.value * factor, digits)
    return value if value == low == high else f"{value} ({low}–{high})"


def times(found: Estimate | None) -> str:
    """A ratio."""
    return interval(found, digits=2)


def listed(words: Sequence[str]) -> str:
    """As `a, b and c`."""
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
