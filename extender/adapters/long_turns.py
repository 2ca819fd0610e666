"""Long turns: counts each event loop turn that takes too long, by the function that it was in.

    thread: asks the loop to turn --not within 50 ms--> reads the stack of the loop's thread
                                  --it has turned----> counts the function, and logs the seconds

The function that names a turn is the outermost one of `extender.app` on the stack.
"""

from __future__ import annotations

import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import structlog
from prometheus_client import CollectorRegistry, Counter

_log = structlog.get_logger(__name__)

LONGEST = 0.05
"""Seconds that a turn may take."""
_LOOK_EVERY = 0.025
_MOST_STEPS = 64
"""Number of steps that are counted separately; all others are counted together as `another`."""
_OURS, _DECIDES = "extender.", "extender.app."
HELD_UP = "the process did not run"


class LongTurns:
    """Watches the loop of the thread that creates it, from a thread of its own, until `close`.

    `cpu`: CPU seconds of this process; if it got less than half of the CPU, the machine was at fault, not a step.
    `frames`: the current frame of each thread.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        registry: CollectorRegistry,
        *,
        longest: float = LONGEST,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._loop = loop
        self._longest = longest
        self._clock, self._cpu, self._frames = clock, cpu, frames
        self._watched = threading.get_ident()
        self._steps: set[str] = set()
        self._counter = Counter(
            "escher_long_turns", "Turns of the event loop of more than 50 ms, by step", ["step"], registry=registry
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="long turns", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Waits until the loop has turned, and counts a long turn. Not for the loop's thread."""
        turned, asked, computed = threading.Event(), self._clock(), self._cpu()
        self._loop.call_soon_threadsafe(turned.set)
        if turned.wait(self._longest):
            return
        steps = steps_of(self._frames().get(self._watched))
        while not turned.wait(self._longest):
            if self._closed.is_set():
                return
        self._tell(steps, self._clock() - asked, self._cpu() - computed)

    def _tell(self, steps: list[str], seconds: float, computed: float) -> None:
        step = step_of(steps)
        if computed < seconds / 2:
            step = HELD_UP
        if len(self._steps) >= _MOST_STEPS and step not in self._steps:
            step = "another"
        self._steps.add(step)
        self._counter.labels(step).inc()
        _log.warning(
            "a turn of the event loop took long", step=step, seconds=round(seconds, 3), steps=" > ".join(steps)
        )


def step_of(steps: Sequence[str]) -> str:
    """The function that names the turn: the outermost one of `extender.app`, else the outermost."""
    return next((each for each in steps if each.startswith(_DECIDES)), steps[0] if steps else "another")


def steps_of(frame: FrameType | None) -> list[str]:
    """Escher's functions on the thread's stack, the outermost first."""
    found = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_OURS):
            found.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]
