"""Loops: finds the service, or kube-scheduler because of it, doing the same thing over and over.

The source is the API server's audit. kube-scheduler writes each new reason of the service into a pod's status, and
tries the pod again. A write that changes an object wakes its watchers, which may call the service again, for ever.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from kubesim.kinds import Json
from kubesim.virtual_time import VirtualTimeLoop
from loadtests.shared.turns import Turns

MOST_A_MINUTE = 100
MOST_ROUNDS = 50_000
"""Rounds of the event loop within one second of virtual time; a busy second has some thousands."""
RESOURCES = "ephemeralresources"
_WRITES = frozenset({"create", "update", "patch", "delete"})
_WATCHED = {"escher": "the service", "system:kube-scheduler": "kube-scheduler"}


class Spinning(RuntimeError):
    """Virtual time hardly passes, because there is always something to do at once."""


class WatchedLoop(VirtualTimeLoop):
    """Raises Spinning if it would go round for ever. `turns`: carries out each turn."""

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
        """What comes next in this round."""
        ready: object = next(iter(getattr(self, "_ready", ())), None)
        return repr(ready)


def run_in(turns: Turns, what: Coroutine[Any, Any, None]) -> None:
    """Carries `what` out in virtual time, with these turns. Raises Spinning."""
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WatchedLoop)
        loop.turns = turns
        runner.run(what)


class Loops:
    """`found` is called once for each loop and minute. `now`: seconds."""

    def __init__(self, found: Callable[[str], None], now: Callable[[], float]) -> None:
        self._found = found
        self._now = now
        self._minute = 0
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()
        self._edits: Counter[str] = Counter()
        """By object: others' writes in this minute; the service may write a status for each.

        "nodes" counts writes to ephemeral resources, because the service may write node status for each one."""

    def hear(self, event: Json) -> None:
        """Counts one request of the audit."""
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
