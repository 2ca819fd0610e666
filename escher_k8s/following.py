"""Following: the service's decisions as they happen, read from its server-sent events.

Knows their form, from which one on to ask again after a connection has broken, and for how long. Must not know how a
stream is opened, nor how to wait.
"""

from __future__ import annotations

import msgspec

from escher_k8s.answers import Decision, Missed
from escher_k8s.calling import Request
from extender.core.backoff import BackOff

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds before a stream that has broken is opened again."""
PATIENCE = 60.0
"""Seconds for which it is tried in vain."""
SILENCE = 45.0
"""Seconds after which a stream that says nothing is taken for broken: the service says that it is there every 15 s."""


class Reading:
    """What has come of one stream, and then of the next. `after`: the number after which it is read."""

    def __init__(self, namespace: str | None, after: int | None) -> None:
        self._namespace = namespace
        self._after = after
        self._kind = ""
        self._back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        self._waited = 0.0

    def pause(self) -> float | None:
        """The stream has ended: seconds until it is to be opened again. None: that has been tried for long enough."""
        pause = self._back_off.failed()
        self._waited += pause
        return pause if self._waited <= PATIENCE else None

    def request(self) -> Request:
        """What is still to come."""
        last = None if self._after is None else str(self._after)
        return Request("GET", ["events"], {"namespace": self._namespace}, {"Last-Event-ID": last})

    def line(self, line: str) -> Decision | Missed | None:
        """What has come whole with this line, if anything has. Every event of the service has one line of data."""
        self._back_off.succeeded()
        self._waited = 0.0
        name, _, value = line.partition(": ")
        if name == "event":
            self._kind = value
        if name != "data":
            return None
        if self._kind == "Missed":
            missed = msgspec.json.decode(value, type=Missed)
            self._after = missed.before - 1
            return missed
        decision = msgspec.json.decode(value, type=Decision)
        self._after = decision.number
        return decision
