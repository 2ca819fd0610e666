"""Following: reads the service's decisions from its server-sent events.

Has the format of the events, the event to resume after when a connection breaks, and the time to keep trying.
"""

from __future__ import annotations

import msgspec

from escher_k8s.answers import Decision, Missed
from escher_k8s.management.calling import Request
from extender.core.common.backoff import BackOff

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds before a broken stream is opened again."""
PATIENCE = 60.0
"""Seconds of failed attempts before giving up."""
SILENCE = 45.0
"""Seconds of silence after which a stream is broken: the service sends a sign each 15 s."""


class Reading:
    """What successive streams have sent. `after`: the number after which reading starts."""

    def __init__(self, namespace: str | None, after: int | None) -> None:
        self._namespace = namespace
        self._after = after
        self._kind = ""
        self._back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        self._waited = 0.0

    def pause(self) -> float | None:
        """Seconds until the ended stream is to be opened again; None: give up."""
        pause = self._back_off.failed()
        self._waited += pause
        return pause if self._waited <= PATIENCE else None

    def request(self) -> Request:
        """The request for what is still to come."""
        last = None if self._after is None else str(self._after)
        return Request("GET", ["events"], {"namespace": self._namespace}, {"Last-Event-ID": last})

    def line(self, line: str) -> Decision | Missed | None:
        """The event that this line completes, or None. Each event has one line of data."""
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
