"""Due: which of several moments comes first. Must not know what happens then."""

from __future__ import annotations


def earliest(*moments: float | None) -> float | None:
    """None: there is none, as what is None never comes."""
    first: float | None = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first
