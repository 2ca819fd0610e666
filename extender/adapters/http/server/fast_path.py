"""Fast path: answers a complete request at once, in the read that completed it.

uvicorn makes a task of every request, and writes head and body of its answer separately. This is a quarter of the cost
of filter for an ordinary pod, and half of that of prioritize. Each of three steps handles what the one before left:

    data_received -> _answered_by_sight   came alone in one read, with a known head (`HeadCache`)
                  -> _answered            is complete, as the parser found
                  -> uvicorn              all else: calls that wait or stream, connections to be closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from extender.adapters.http.server.bodies import Answer, declared_length
from extender.adapters.http.server.connections import BoundedProtocol, Bounds
from extender.adapters.http.server.head_cache import HeadCache
from extender.adapters.http.server.peer import MaySchedule, Peer, anybody


class Served(Protocol):
    """An ASGI application that can answer some requests at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def at_once(self, method: str, path: str, body: bytes) -> Answer | None:
        """Returns the answer to a request with that complete body; None: call the application."""
        ...

    def may_schedule(self, peer: Peer) -> bool:
        """Whether requests of that peer may be answered so."""
        ...


AtOnce = Callable[[str, str, bytes], Answer | None]

_AWAITED_BYTES = 2**20
"""Bytes; a body of a verb with 15,000 names has a third of this."""
_AWAITED = 16
"""Connections; limits what is awaited, in addition to other bodies, which the `BodyRoom` limits."""
_AWAITED_SECONDS = 0.01


class DirectProtocol(BoundedProtocol):
    """One connection. `at_once`, `may_schedule`: from the application.

    `heads`, `awaited`: shared by all connections of one server."""

    at_once: AtOnce
    may_schedule: MaySchedule
    heads: HeadCache
    awaited: set[DirectProtocol]
    """The connections with a request that has begun and whose remaining body is awaited."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reading = False
        self._in_message = False
        """Whether the parser is inside of a request, or of data that is no request."""
        self._begun: tuple[RequestResponseCycle, Any] | None = None
        """The next request, for which no task has been made."""
        self._patience: asyncio.TimerHandle | None = None
        """The timer that ends the wait for the request's body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.may_schedule(self.peer):
            # The application says why. Here the check is made once, not at each call.
            self.at_once = _nothing

    # -- by sight ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        alone = self._is_idle()
        if alone and self._answered_by_sight(data):
            return
        self._reading = True
        super().data_received(data)
        self._reading = False
        if self._begun is not None:
            self._go_on(*self._begun, data if alone else b"")

    def _is_idle(self) -> bool:
        """Whether the next data begins a request, and no earlier request is in progress."""
        return (
            not (self._in_message or self._refused or self._late is not None or self.flow.write_paused)
            and (self.cycle is None or self.cycle.response_complete)
            and not self.transport.is_closing()
        )

    def _answered_by_sight(self, data: bytes) -> bool:
        """Does the same as `_answered`, without the parser and uvicorn's request objects."""
        seen = self.heads.read(data)
        if seen is None or (answer := self.at_once(*seen)) is None:
            return False
        self.transport.write(_written(answer, self.server_state.default_headers))
        self.on_response_complete()
        return True

    # -- by what the parser has made of it -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_message = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        # The data after the head of an upgrade is not HTTP.
        self._in_message = self.parser.should_upgrade()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # uvicorn calls this at the end of a head: the same read may contain the whole body.
        if self._reading:
            self._begun = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def _go_on(self, cycle: RequestResponseCycle, app: Any, data: bytes) -> None:
        """Continues with the begun request. `data`: may be that whole request and nothing else."""
        if not self._refused and self._is_awaited(cycle):
            self._await()
            return
        self._no_longer_await()
        if self._refused:
            return
        if not self._answered(cycle):
            super()._start_asgi_task(cycle, app)
        elif data:
            self.heads.remember(data, cycle.scope["method"], cycle.scope["path"])

    def _await(self) -> None:
        if self._patience is None:
            self.awaited.add(self)
            self._patience = self.loop.call_later(_AWAITED_SECONDS, self._await_in_vain)
        # uvicorn resumes reading when the application takes the body; here no application runs yet.
        self.flow.resume_reading()

    def _await_in_vain(self) -> None:
        begun = self._begun
        self._no_longer_await()
        if begun is None or self._refused:
            return
        if len(begun[0].body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        super()._start_asgi_task(*begun)

    def _no_longer_await(self) -> None:
        self._begun = None
        if self._patience is not None:
            self.awaited.discard(self)
            self._patience.cancel()
            self._patience = None

    def _is_awaited(self, cycle: RequestResponseCycle) -> bool:
        """Whether the rest of the body is expected soon, and worth waiting for.

        Thousands of names come in two or three reads. uvicorn handles slow callers, and bodies of unknown length."""
        if not cycle.more_body or cycle.waiting_for_100_continue or not cycle.keep_alive:
            return False
        if self.at_once is _nothing:
            # Strangers must not take the places of kube-scheduler.
            return False
        if self._patience is None and len(self.awaited) >= _AWAITED:
            return False
        scope: Any = cycle.scope
        length = declared_length(scope)
        return length is not None and length <= _AWAITED_BYTES

    def _answered(self, cycle: RequestResponseCycle) -> bool:
        if cycle.more_body or not cycle.keep_alive or cycle.waiting_for_100_continue or self.flow.write_paused:
            return False
        if self.parser.should_upgrade():
            # An upgrade has no body, whatever length was announced.
            return False
        answer = self.at_once(cycle.scope["method"], cycle.scope["path"], bytes(cycle.body))
        if answer is None:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(_written(answer, cycle.default_headers))
        cycle.on_response()
        # `on_response` is a method of this object, which keeps the last request. As in uvicorn, cutting this cycle
        # frees both early; and no body stays in memory until the next request.
        cycle.on_response = lambda: None
        cycle.body = bytearray()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_await()
        super().connection_lost(exc)


def _written(answer: Answer, default: list[tuple[bytes, bytes]]) -> bytes:
    pieces = [STATUS_LINE[answer.status]]
    for name, value in (*default, *answer.headers):
        pieces += name, b": ", value, b"\r\n"
    pieces += b"\r\n", answer.body
    return b"".join(pieces)


def _nothing(method: str, path: str, body: bytes) -> Answer | None:
    return None


def direct(bounds: Bounds, at_once: AtOnce, may_schedule: MaySchedule = anybody) -> type[DirectProtocol]:
    """Returns the protocol class for uvicorn's `http`, with these bounds.

    It needs `at_once` and `may_schedule` of the application, because uvicorn wraps that."""
    of_served = {"at_once": staticmethod(at_once), "may_schedule": staticmethod(may_schedule)}
    of_one_server = {"bounds": bounds, "heads": HeadCache(), "awaited": set()}
    return type("DirectProtocol", (DirectProtocol,), {**of_served, **of_one_server})
