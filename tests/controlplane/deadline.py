"""Waiting for the real world in tests: until something holds, never for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(look: Callable[[], Value], *, within: float = 20, what: str = "it") -> Value:
    """The first truthy value that `look` answers. Fails the test if none came in time."""
    deadline = time.monotonic() + within
    while not (value := look()):
        assert time.monotonic() < deadline, f"{what} did not happen within {within} s"
        threading.Event().wait(0.05)
    return value
