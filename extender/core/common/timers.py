"""Timers: the earliest of several moments."""

from __future__ import annotations


def earliest(*moments: float | None) -> float | None:
    """The earliest moment; None if all are None."""
    first: float | None = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first
