"""Connections: limits the number of connections, and each one's bytes and seconds before a call.

uvicorn with httptools limits none of this: it accepts headers of any length, and waits for the rest of a request for
ever.

`head_bytes` limits everything that is not body: request line, headers, and the frames and trailers of a body in chunks.
A refusal is a problem like any other, and the connection is closed after it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from extender.adapters.http.problems import CONTENT_TYPE, Problem, ProblemKind
from extender.adapters.http.server.peer import IN_STATE, STRANGER, peer_at

_log = structlog.get_logger(__name__)

_LINGER_SECONDS = 1.0
"""Closing while the caller still sends would reset the connection, and the refusal be lost."""
_SPARE = 64
"""Connections above the limit that get an answer before they are closed."""
_SAID_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Bounds:
    """Limits of connections, without kernel buffers and up to 256 KiB that are read at once."""

    connections: int | None = None
    """At the same time; None: any number."""
    head_bytes: int = 64 * 2**10
    head_seconds: float = 10.0
    """From the first byte of a request to the last of its head."""
    stall_seconds: float = 10.0
    """Seconds within which a body's next bytes must come."""
    body_seconds: float = 60.0
    """From the head to the body's last byte."""
    unread_seconds: float = 60.0
    """Seconds within which the caller must have read an answer."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, limited by `bounds`. An unused connection is closed like an idle one."""

    bounds = Bounds()
    _said = -_SAID_AGAIN_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.peer = STRANGER
        self._in_body = False
        self._loose = 0
        """Bytes of this request that are not body."""
        self._body = 0
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._refused = False

    # -- bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_at(transport)
        if self.peer.verified:
            # The initial state of this connection's requests.
            self.app_state = {**self.app_state, IN_STATE: self.peer}
        most = self.bounds.connections
        if most is None or len(self.connections) <= most:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
            return
        self._say_full(most)
        if len(self.connections) > most + _SPARE:
            self._refused = True
            transport.abort()
        else:
            told = f"all {most} allowed connections are open (setting connections_limit)"
            self._refuse(Problem(ProblemKind.BUSY, told, headers={"Retry-After": "1"}))

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._loose += len(data)
        super().data_received(data)
        if self._refused:
            return
        if self._loose > self.bounds.head_bytes:
            self._refuse_head()
        elif self._late is None and (self._loose or self._in_body):
            self._wait_for_more()

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        if self._loose > self.bounds.head_bytes:
            # Much of the read data may be body.
            length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if length > self.bounds.head_bytes:
                self._refuse_head()
                return
        if self._late is not None:
            self._no_longer_late()
        super().on_headers_complete()
        self._in_body, self._body = True, 0

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._loose -= len(body)
        self._body += len(body)
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        # A body may be in very many chunks.
        self._loose = 0

    def on_message_complete(self) -> None:
        if self._refused:
            return
        if self._late is not None:
            self._no_longer_late()
        # What follows in the same read belongs to the next request, and is not counted.
        self._in_body, self._loose = False, 0
        super().on_message_complete()

    # -- time

    def _wait_for_more(self) -> None:
        if self._in_body:
            self._look_at_body(until=self.loop.time() + self.bounds.body_seconds, had=-1)
        else:
            self._late = self.loop.call_later(
                self.bounds.head_seconds,
                self._refuse,
                Problem(ProblemKind.TOO_SLOW, f"the head was not complete after {self.bounds.head_seconds:g} s"),
            )

    def _look_at_body(self, until: float, had: int) -> None:
        now = self.loop.time()
        if now >= until:
            self._refuse(
                Problem(ProblemKind.TOO_SLOW, f"the body was not complete after {self.bounds.body_seconds:g} s")
            )
        elif self._body == had and not self.flow.read_paused:
            self._refuse(Problem(ProblemKind.TOO_SLOW, f"no body data arrived for {self.bounds.stall_seconds:g} s"))
        else:
            # While reading is paused, the server takes no bytes: the caller is not at fault.
            at = min(now + self.bounds.stall_seconds, until)
            self._late = self.loop.call_at(at, self._look_at_body, until, self._body)

    def _no_longer_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_unless_read(self.bounds.unread_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None and not self._refused:
            self._unread.cancel()
            self._unread = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.keep_alive and self.transport.is_closing():
            self._abort_unless_read(self.bounds.unread_seconds)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # A closed connection continues to be written for as long as its caller takes.
        self._abort_unless_read(_LINGER_SECONDS)

    def _abort_unless_read(self, seconds: float) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = self.loop.call_later(seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_late()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._unread is not None:
            self._unread.cancel()

    # -- refusals

    def send_400_response(self, msg: str) -> None:
        if not self._refused:
            self._refuse(Problem(ProblemKind.NOT_HTTP, msg))

    def _refuse_head(self) -> None:
        most = self.bounds.head_bytes
        self._refuse(Problem(ProblemKind.HEAD_TOO_LARGE, f"request line and headers are longer than {most} bytes"))

    def _refuse(self, problem: Problem) -> None:
        """Answers with the problem, unless it could be taken for another answer, and soon closes."""
        self._refused = True
        self._no_longer_late()
        self._unset_keepalive_if_required()
        cycle, in_body = self.cycle, self._in_body
        unanswered = cycle is not None and not cycle.response_complete
        begun = in_body and (not unanswered or cycle.response_started or bool(self.pipeline))
        earlier = not in_body and unanswered
        if unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        if self.transport.is_closing():
            return
        if not (begun or earlier):
            self.transport.write(_answer(problem))
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        self._abort_unless_read(_LINGER_SECONDS)

    def _say_full(self, most: int) -> None:
        now = self.loop.time()
        if now - type(self)._said >= _SAID_AGAIN_SECONDS:
            type(self)._said = now
            _log.warning("no more connections are accepted", open=most, setting="connections_limit")


def _answer(problem: Problem) -> bytes:
    body = problem.body()
    headers = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(body)), "Connection": "close", **problem.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + lines.encode() + b"\r\n" + body
