"""What was measured of one figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """`now`, of so many samples, and an interval for it; in the unit of the row."""

    row: str
    now: float
    low: float
    high: float
    samples: int
