"""Ages: times as the short durations of kubectl's tables, and the columns of such tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from kubesim.kinds import Json

Column = Json
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 24 * 3600, 365 * 24 * 3600


def human_duration(duration: float) -> str:
    """Seconds as Kubernetes writes them, coarser the longer; `<invalid>` for -2 s or less."""
    whole = int(duration)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, unit: int, name: str, part: int, part_name: str) -> str:
    rest = whole % unit // part
    return f"{whole // unit}{name}" + (f"{rest}{part_name}" if rest else "")


@lru_cache(maxsize=65536)
def seconds(stamp: str | None) -> float | None:
    """A Kubernetes time in seconds since the epoch; None if `stamp` is empty. Raises ValueError."""
    if not stamp:
        return None
    time = datetime.fromisoformat(stamp)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def is_time(text: str) -> bool:
    """Whether the text is a time in RFC 3339 format."""
    return _RFC_3339.fullmatch(text) is not None and _is_of_the_calendar(text)


def _is_of_the_calendar(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def since(stamp: str | None, now: float) -> str:
    """The time since `stamp`, as `human_duration`."""
    then = seconds(stamp)
    return "<unknown>" if then is None else human_duration(now - then)


def age(item: Json, now: float) -> str:
    return since(item["metadata"].get("creationTimestamp"), now)


def column(
    name: str, description: str, *, of_type: str = "string", wide: bool = False, format: str = ""
) -> dict[str, Any]:
    """A column of a Table. `wide`: shown only with -o wide."""
    return {
        "name": name,
        "type": of_type,
        "format": format,
        "description": description,
        "priority": 1 if wide else 0,
    }


NAME = column("Name", "The name, unique among objects of this kind in the namespace.", format="name")
AGE = column("Age", "How long ago the object was created.")
