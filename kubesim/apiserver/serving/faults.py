"""Faults: errors, delays and repeated arrivals of requests, injected by tests.

Only in-process connections (`in_process`) apply them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from extender.kube.errors import Refused, Unavailable


@dataclass(frozen=True)
class Fault:
    """A fault of requests: an error, a delay, or a second arrival.

    The sender gets `error` before the request arrives or, with `after`, once it was carried out. Without an error the
    request (with `after` the answer) is `seconds` late. It applies to requests of this `method`, whose `path` the
    pattern is found in and whose `user` the pattern matches fully; empty matches any. `skip` matching requests pass
    first; the next `times` get the fault (None: all until `remove`)."""

    error: Unavailable | Refused | None = None
    after: bool = False
    method: str = ""
    path: str = ""
    user: str = ""
    seconds: float = 0.0
    """Delay of the request, the answer or the error, in seconds."""
    skip: int = 0
    times: int | None = 1
    again: float | None = None
    """The request arrives again this many seconds after the sender got its answer or error.

    So it comes too late if it had not arrived, or a second time if it had."""
    again_if: Callable[[], bool] = lambda: True
    """Decides at that moment whether the request arrives again."""

    def concerns(self, user: str, method: str, path: str) -> bool:
        if self.method not in ("", method) or (self.user and re.fullmatch(self.user, user) is None):
            return False
        return not self.path or re.search(self.path, path) is not None


class Faults:
    """The pending faults, in order; a request meets at most one."""

    def __init__(self) -> None:
        self._coming: list[_Coming] = []

    def add(self, *faults: Fault) -> None:
        self._coming.extend(_Coming(each, each.skip, each.times) for each in faults)

    def remove(self, fault: Fault) -> None:
        """No further request meets this fault."""
        self._coming = [each for each in self._coming if each.fault is not fault]

    def met_by(self, user: str, method: str, path: str) -> Fault | None:
        """The fault that an arriving request meets, or None. It consumes `skip` and `times`."""
        coming = next((each for each in self._coming if each.fault.concerns(user, method, path)), None)
        if coming is None:
            return None
        if coming.skip:
            coming.skip -= 1
            return None
        if coming.times is not None:
            coming.times -= 1
            if not coming.times:
                self._coming.remove(coming)
        return coming.fault


@dataclass(eq=False)
class _Coming:
    """A fault, with the numbers of requests that still pass it and that still meet it."""

    fault: Fault
    skip: int
    times: int | None
