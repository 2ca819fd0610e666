"""Direct: a request that is whole, and whose answer is not to be waited for, is answered where it was read.

uvicorn makes a task of every request, and of its answer two writes to the kernel, head and body: for an ordinary pod a
quarter of what filter costs, and half of what prioritize does. There are three steps, each for what the one before it
left:

    data_received -> _answered_by_sight   came in one read, alone, and its head has come before (`heads`)
                  -> _answered            is whole, as the parser has it
                  -> uvicorn              as ever: what waits, what streams, whoever wants the connection closed

Knows uvicorn's protocol. Must not know what is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from extender.adapters.http.bodies import Answer, declared_length
from extender.adapters.http.connections import BoundedProtocol, Bounds
from extender.adapters.http.head_cache import HeadCache
from extender.adapters.http.peer import MaySchedule, Peer, anybody


class Served(Protocol):
    """An ASGI application that answers some requests by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def at_once(self, method: str, path: str, body: bytes) -> Answer | None:
        """The answer to a request with that body, which is complete; None: it is to be asked as an application."""
        ...

    def may_schedule(self, peer: Peer) -> bool:
        """Whether what that peer asks may be answered so."""
        ...


AtOnce = Callable[[str, str, bytes], Answer | None]

_AWAITED_BYTES = 2**20
"""A body of a verb with 15,000 names has a third of that."""
_AWAITED = 16
"""Connections, so that what is awaited is bounded beside all other bodies, for which there is a `BodyRoom`."""
_AWAITED_SECONDS = 0.01


class DirectProtocol(BoundedProtocol):
    """One connection. `at_once`, `may_schedule`: as of what is served; `heads`, `awaited`: of all connections of one
    server."""

    at_once: AtOnce
    may_schedule: MaySchedule
    heads: HeadCache
    awaited: set[DirectProtocol]
    """Those of which a request has begun, the rest of whose body is awaited."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reading = False
        self._in_message = False
        """Whether the parser is in the midst of a request, or of what is none."""
        self._begun: tuple[RequestResponseCycle, Any] | None = None
        """The request that is next, of which no task has been made."""
        self._patience: asyncio.TimerHandle | None = None
        """Until its body is not awaited any more."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.may_schedule(self.peer):
            # It is said why by the application; here nothing has to be asked at each call.
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
        """Whether what comes next is the beginning of a request, and nobody is before it."""
        return (
            not (self._in_message or self._refused or self._late is not None or self.flow.write_paused)
            and (self.cycle is None or self.cycle.response_complete)
            and not self.transport.is_closing()
        )

    def _answered_by_sight(self, data: bytes) -> bool:
        """As `_answered`, without a parser, and with nothing of what uvicorn makes for a request."""
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
        # After the head of an upgrade comes what is no HTTP.
        self._in_message = self.parser.should_upgrade()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # uvicorn calls this at the end of a head: what is read with it may be the whole body.
        if self._reading:
            self._begun = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def _go_on(self, cycle: RequestResponseCycle, app: Any, data: bytes) -> None:
        """With the request that has begun. `data`: which may be the whole of it, and nothing else."""
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
        # uvicorn has whoever takes the body read on.
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
        """Whether the rest of its body is on its way, and worth waiting for: thousands of names come in two or three
        reads. Who is not so fast, or does not say how much comes, is uvicorn's."""
        if not cycle.more_body or cycle.waiting_for_100_continue or not cycle.keep_alive:
            return False
        if self.at_once is _nothing:
            # A stranger's takes no place from kube-scheduler's.
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
            # Its body is none, whatever length was announced.
            return False
        answer = self.at_once(cycle.scope["method"], cycle.scope["path"], bytes(cycle.body))
        if answer is None:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(_written(answer, cycle.default_headers))
        cycle.on_response()
        # It is a method of ours, and we keep the last request: as uvicorn leaves it, nobody is freed late for that, and
        # no body stays in memory until the next one comes.
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
    """The protocol with these bounds, for uvicorn's `http`. `at_once`, `may_schedule`: of what is served, which uvicorn
    does not tell: it wraps that."""
    of_served = {"at_once": staticmethod(at_once), "may_schedule": staticmethod(may_schedule)}
    of_one_server = {"bounds": bounds, "heads": HeadCache(), "awaited": set()}
    return type("DirectProtocol", (DirectProtocol,), {**of_served, **of_one_server})
