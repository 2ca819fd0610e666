"""Shapes: how many users there are at a time. Pure; seconds since the load began.

steady   all users, all the time
ramp     more and more users, until all are there at the end: where does it saturate?
spike    a tenth of the users; all for the third fifth of the time; a tenth again: how does it recover?
soak     all users, for long, except for a twentieth at the beginning and at the end: does anything grow?
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

STEADY, SOAK = "steady", "soak"
SECONDS = {STEADY: 20.0, "ramp": 120.0, "spike": 120.0, SOAK: 3600.0}
"""Default duration of the load."""

_USUAL = 0.1
_SPIKE = (0.4, 0.6)
EDGE = 0.05
"""Share of a soak's time, at its beginning and at its end."""
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def ramp(at: float, users: int, seconds: float) -> int:
    return _within(users * at / seconds, users)


def spike(at: float, users: int, seconds: float) -> int:
    begins, ends = (share * seconds for share in _SPIKE)
    return users if begins <= at < ends else _within(users * _USUAL, users)


def soak(at: float, users: int, seconds: float) -> int:
    edge = seconds * EDGE
    return _within(users * min(at, seconds - at) / edge, users)


SHAPES: dict[str, Callable[[float, int, float], int]] = {"ramp": ramp, "spike": spike, SOAK: soak}


def _within(wanted: float, users: int) -> int:
    return min(users, max(1, math.ceil(wanted)))


def tick(shape: str, at: float, users: int, seconds: float) -> tuple[int, float] | None:
    """Returns for Locust the number of users and how many change a second; None at the end."""
    if at >= seconds:
        return None
    return SHAPES[shape](at, users, seconds), float(min(users, 100))


def seconds_of(text: str) -> float:
    """Parses a duration such as 90, 20s, 5m, 1h30m, as Locust does. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    total = sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    if not total:
        raise ValueError(f"is {text!r}; write a duration of at least a second, such as 90, 20s, 5m or 1h30m")
    return float(total)
