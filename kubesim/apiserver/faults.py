"""Faults: what befalls requests on their way to the API server and back, as tests put it.

Only what comes in process meets them. Must not know what a request means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from extender.kube.errors import Refused, Unavailable


@dataclass(frozen=True)
class Fault:
    """`error` is what is told, of a request that has not arrived or, `after`, of one that was carried out. Without an
    error the answer is late, or the request is, by `seconds`.

    Met by requests with this `method` and a `path` in which the pattern is found, of a `user` whom that pattern
    describes; empty: of any. So many of them (`skip`) go by before, and so many meet it (`times`; None: all until it is
    taken back).
    """

    error: Unavailable | Refused | None = None
    after: bool = False
    method: str = ""
    path: str = ""
    user: str = ""
    seconds: float = 0.0
    """How much later than any other its answer, or the error, comes."""
    skip: int = 0
    times: int | None = 1
    again: float | None = None
    """It arrives once more, so many seconds after its sender has heard what there is to hear: what had not arrived, too
    late; what had, a second time."""
    again_if: Callable[[], bool] = lambda: True
    """Whether it arrives once more, asked at that moment."""

    def concerns(self, user: str, method: str, path: str) -> bool:
        if self.method not in ("", method) or (self.user and re.fullmatch(self.user, user) is None):
            return False
        return not self.path or re.search(self.path, path) is not None


class Faults:
    """Those that are still to be met, in order: a request meets one at most."""

    def __init__(self) -> None:
        self._coming: list[_Coming] = []

    def add(self, *faults: Fault) -> None:
        self._coming.extend(_Coming(each, each.skip, each.times) for each in faults)

    def remove(self, fault: Fault) -> None:
        """Nobody meets it any more."""
        self._coming = [each for each in self._coming if each.fault is not fault]

    def met_by(self, user: str, method: str, path: str) -> Fault | None:
        """A request has arrived: what befalls it."""
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
    """A fault, and by how many more requests it is to be passed, and then met."""

    fault: Fault
    skip: int
    times: int | None
