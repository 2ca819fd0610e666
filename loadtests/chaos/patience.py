"""Patience: repeats calls to a server that may be away for a while, until they are answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import httpx

from lab.controlplane.api import ApiError

T = TypeVar("T")

_PAUSE = 0.1
_LONGEST = 120.0
"""Seconds."""


def insist(call: Callable[[], T], *, final: tuple[int, ...] = (), within: float = _LONGEST) -> T:
    """The answer. Raises the last error after `within` seconds, or ApiError of a `final` status.

    An error with a `final` status is raised at once. A server that starts refuses some requests, so every other refusal
    is taken for a passing one."""
    deadline = time.monotonic() + within
    while True:
        try:
            return call()
        except ApiError as error:
            if error.status in final or time.monotonic() > deadline:
                raise
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
        threading.Event().wait(_PAUSE)
