"""Turns: finds long turns of the service's event loop, in calls: equal runs give equal numbers.

Counting calls makes a turn five times slower. So the first run takes the time of each turn. If a turn took long for any
reason, the same run is repeated, and the calls of that turn are counted and judged. Counted are the calls that the
service's code makes: of its own functions, of libraries and of built-in ones, but not those of a simulated API server
or kube-scheduler. A built-in function that iterates, such as `sorted`, counts as one. Between two events of a watch a
reflector ends its turn after 5 ms, which virtual time does not show. So after as many calls as 5 ms take, the next
event restarts the count.
"""

from __future__ import annotations

import sys
import time
from asyncio import Handle
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import extender
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.long_turns import step_of, steps_of

Lived = TypeVar("Lived")

LONG_TURN = "long turn"
MOST_CALLS = 100_000
"""Calls of one turn, at most. Some 45 ms: 0.45 us each, for a noisy tenant on two shared cores."""
SUSPECT = 0.02
"""CPU seconds after which to count calls: `MOST_CALLS` take longer on a faster machine too."""
_OURS = str(Path(extender.__file__).parent)
_CALLS_OF_A_SLICE = 12_000
"""Calls that a reflector makes in 5 ms."""
_NEXT_EVENT = Reflector._take.__code__


class _Ours(dict[str, bool]):
    def __missing__(self, file: str) -> bool:
        self[file] = is_ours = file.startswith(_OURS)
        return is_ours


class Turns:
    """Runs turns, and calls `found` once for each step at which a turn made too many calls.

    `counting`: numbers of the turns whose calls are counted; None: first run.
    """

    def __init__(self, found: Callable[[str], None], counting: Collection[int] | None = None) -> None:
        self.suspects: list[int] = []
        """Numbers of the turns that took long."""
        self.most = 0
        """Calls of the longest turn that was counted."""
        self._found = found
        self._counting = counting
        self._number = 0
        self._calls = 0
        self._steps: list[str] = []
        self._told: set[str] = set()
        self._ours = _Ours()

    def turn(self, handle: Handle) -> None:
        self._number += 1
        if self._counting is None:
            began = time.thread_time()
            handle._run()
            if time.thread_time() - began >= SUSPECT:
                self.suspects.append(self._number)
        elif self._number in self._counting:
            self._count(handle)
        else:
            handle._run()

    def _count(self, handle: Handle) -> None:
        self._calls, before = 0, sys.getprofile()
        sys.setprofile(self._hear)
        try:
            handle._run()
        finally:
            sys.setprofile(before)
        self._end_turn()

    def _end_turn(self) -> None:
        self.most, calls, self._calls = max(self.most, self._calls), self._calls, 0
        if calls > MOST_CALLS and (step := step_of(self._steps)) not in self._told:
            self._told.add(step)
            self._found(f"{step} made {calls} calls in one turn: {' > '.join(self._steps)}")

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:
        caller: FrameType | None = frame
        if event == "call":
            caller = frame.f_back
            if frame.f_code is _NEXT_EVENT and self._calls > _CALLS_OF_A_SLICE:
                self._end_turn()
        elif event != "c_call":
            return
        if caller is not None and self._ours[caller.f_code.co_filename]:
            self._calls += 1
            if self._calls == MOST_CALLS:
                self._steps = steps_of(caller)


def judged(live: Callable[[Turns], Lived]) -> tuple[Lived, int, list[str]]:
    """Calls `live` with these turns, and again if turns took long, to count their calls.

    Returns the first result, the calls of the longest turn (0 if none took long), and what was found.
    """
    found: list[str] = []
    first = Turns(found.append)
    lived = live(first)
    if not first.suspects:
        return lived, 0, found
    again = Turns(found.append, first.suspects)
    live(again)
    return lived, again.most, found
