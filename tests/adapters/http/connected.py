"""Connections without sockets to a server that serves an application as `escher serve` does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.bodies import Answer
from extender.adapters.http.server.connections import BoundedProtocol, Bounds
from extender.adapters.http.server.fast_path import direct
from tests.adapters.http.fakes import service


class Line(asyncio.Transport):
    """A connection's other side: what it was told, and whether it is still there. It takes `room` bytes unread."""

    def __init__(self, protocol: BoundedProtocol, room: int = 2**62, half_closes: bool = True) -> None:
        super().__init__()
        self.told = b""
        self.writes = 0
        self.ended = False
        self.closed_at: float | None = None
        self.protocol: Any = protocol
        self._room, self._paused, self._half_closes = room, False, half_closes
        protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        if self.closed_at is None:
            self.protocol.data_received(data)

    def write(self, data: Any) -> None:
        self.told += data
        self.writes += 1
        if len(self.told) > self._room and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, len(self.told) - self._room)

    def read_all(self) -> None:
        self._room = 2**62
        if self._paused:
            self._paused = False
            self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return self._half_closes

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def close(self) -> None:
        # As a real one: not before everything has been read.
        self.ended = True
        if not self.get_write_buffer_size():
            self.abort()

    def abort(self) -> None:
        if self.closed_at is None:
            loop = asyncio.get_running_loop()
            self.closed_at = loop.time()
            loop.call_soon(self.protocol.connection_lost, None)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def status(self) -> int | None:
        return int(self.told.split(b" ", 2)[1]) if self.told else None

    def problem(self) -> dict[str, Any]:
        head, _, body = self.told.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        assert b"Connection: close" in head
        assert f"Content-Length: {len(body)}".encode() in head
        told: dict[str, Any] = json.loads(body)
        assert set(told) == {"type", "title", "status", "detail", "field"}
        assert told["status"] == self.status()
        return told


@dataclass
class Site:
    """Connections to one server that serves `app`. `direct`: some is answered where it was read."""

    bounds: Bounds = field(default_factory=Bounds)
    app: ASGIApp = field(default_factory=service)
    direct: bool = True

    def __post_init__(self) -> None:
        self.state = ServerState()
        plain = type("Plain", (BoundedProtocol,), {"bounds": self.bounds})
        http = direct(self.bounds, self._at_once) if self.direct else plain
        self._config = uvicorn.Config(self.app, http=http, ws="none", log_config=None, lifespan="off")
        self._config.timeout_keep_alive = 120
        self._config.load()

    def _at_once(self, method: str, path: str, body: bytes) -> Answer | None:
        return self.app.at_once(method, path, body) if isinstance(self.app, Service) else None

    def line(self, **wishes: Any) -> Line:
        made: Any = self._config.http_protocol_class
        return Line(made(config=self._config, server_state=self.state, app_state={}), **wishes)
