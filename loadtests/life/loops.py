"""Loops: the service does the same thing to the same object over and over, as the audit of the API server tells; or it
has kube-scheduler do so, which writes each new reason of ours into a pod's status, and tries the pod again for that.

A write that changes something wakes whoever follows the object, who may call the service again: so a loop of two spins
as fast as both can, for ever.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from kubesim.kinds import Json
from kubesim.virtual_time import VirtualTimeLoop
from loadtests.turns import Turns

MOST_A_MINUTE = 100
MOST_ROUNDS = 50_000
"""Of the event loop, within a second of virtual time: a busy one has some thousands."""
RESOURCES = "ephemeralresources"
_WRITES = frozenset({"create", "update", "patch", "delete"})
_WATCHED = {"escher": "the service", "system:kube-scheduler": "kube-scheduler"}


class Spinning(RuntimeError):
    """Virtual time hardly passes any more, for something always has something to do at once."""


class WatchedLoop(VirtualTimeLoop):
    """Ends where it would go round for ever. `turns`: carries out each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(lambda what: None)
        self._rounds, self._second = 0, 0

    def _advance(self, seconds: float | None) -> None:
        super()._advance(seconds)
        if int(self.time()) != self._second:
            self._rounds, self._second = 0, int(self.time())

    def _run_once(self) -> None:
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            self._rounds = 0
            raise Spinning(f"{MOST_ROUNDS} rounds of the event loop within a second: {self._next()}")
        super()._run_once()

    def _turn(self, handle: Handle) -> None:
        self.turns.turn(handle)

    def _next(self) -> str:
        """What is to be done in this round."""
        ready: object = next(iter(getattr(self, "_ready", ())), None)
        return repr(ready)


def run_in(turns: Turns, what: Coroutine[Any, Any, None]) -> None:
    """It is carried out in virtual time, by these turns. Raises Spinning."""
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WatchedLoop)
        loop.turns = turns
        runner.run(what)


class Loops:
    """`found` is told each loop once. `now`: seconds."""

    def __init__(self, found: Callable[[str], None], now: Callable[[], float]) -> None:
        self._found = found
        self._now = now
        self._minute = 0
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()
        self._edits: Counter[str] = Counter()
        """By others than the service, of each object, whose status is to be written for each; and of all resources, for
        each of which node status is."""

    def hear(self, event: Json) -> None:
        """One request, as the audit has it."""
        if (minute := int(self._now() // 60)) != self._minute:
            self._minute = minute
            self._edits.clear()
            self._counts.clear()
            self._told.clear()
        about = event["objectRef"]
        edited = "/".join((about["resource"], about.get("namespace", ""), about.get("name", "")))
        if (who := _WATCHED.get(event["user"]["username"])) is None:
            if event["verb"] in _WRITES:
                self._edits[edited] += 1
                self._edits["nodes"] += about["resource"] == RESOURCES
            return
        if about["resource"] == "events":
            return
        names = (about.get("namespace", ""), about.get("name", ""), about.get("subresource", ""))
        what = f"{who} has asked, {event['verb']} {about['resource']} {'/'.join(filter(None, names))}"
        self._counts[what] += 1
        most = MOST_A_MINUTE + self._edits["nodes" if about["resource"] == "nodes" else edited]
        if self._counts[what] >= most and what not in self._told:
            self._told.add(what)
            self._found(f"{most} times within a minute {what}")
