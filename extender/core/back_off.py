"""How long to leave alone what has failed: each time twice as long, up to a longest time."""

from __future__ import annotations


def doubled(first: float, times: int, longest: float) -> float:
    """`first` seconds, doubled so many times, `longest` at most. The same whatever its chances; who needs some adds
    them."""
    return min(first * 2.0 ** min(times, 32), longest)
