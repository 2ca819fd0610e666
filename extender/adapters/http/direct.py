"""Direct: a request that came whole, and whose answer is not to be waited for, is answered where it was read.

uvicorn makes a task of every request, and of its answer two writes to the kernel, head and body: for an ordinary pod a
quarter of what filter costs, and half of what prioritize does. Whatever is not answered so goes through uvicorn as
ever: what came in pieces, what waits, whoever wants the connection closed. Knows uvicorn's protocol. Must not know what
is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from extender.adapters.http.bodies import Answer
from extender.adapters.http.connections import BoundedProtocol, Bounds
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


class DirectProtocol(BoundedProtocol):
    """One connection. `at_once`, `may_schedule`: as of what is served."""

    at_once: AtOnce
    may_schedule: MaySchedule

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reading = False
        self._begun: tuple[RequestResponseCycle, Any] | None = None
        """The request that is next, of which no task has been made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.may_schedule(self.peer):
            # It is said why by the application; here nothing has to be asked at each call.
            self.at_once = _nothing

    def data_received(self, data: bytes) -> None:
        self._reading = True
        super().data_received(data)
        self._reading = False
        begun, self._begun = self._begun, None
        if begun is not None and not self._refused and not self._answered(begun[0]):
            super()._start_asgi_task(*begun)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # uvicorn calls this at the end of a head: what is read with it may be the whole body.
        if self._reading:
            self._begun = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

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
    return type("DirectProtocol", (DirectProtocol,), {"bounds": bounds, **of_served})
