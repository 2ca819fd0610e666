"""Listening: opens the service's sockets, and runs uvicorn without signal handling.

An address or setting that is unusable is reported before anything else begins."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from extender.adapters.http.server.connections import Bounds
from extender.adapters.http.server.fast_path import Served, direct
from extender.adapters.http.server.tls import CannotListen, ServedCertificates
from extender.settings.settings import Settings

_BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, if net.core.somaxconn allows it."""


class Server(uvicorn.Server):
    """uvicorn without signal handling: its owner ends it. Raises CannotListen and never exits."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn would raise the signals again at its end, and so end the process before other parts are closed.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:
            # Two sockets may be bound to an address until one of them listens.
            raise CannotListen(f"cannot listen: {error.strerror or error}") from error

    async def answered(self) -> None:
        """Waits until no call is in progress."""
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)


def http_server(
    service: Served, settings: Settings, connections: int | None = None, certificates: ServedCertificates | None = None
) -> Server:
    """Returns the server as kube-scheduler needs it; with certificates it uses HTTPS.

    `connections`: limit of open ones, if below the setting."""
    # After this time kube-scheduler no longer waits; other callers may have slower connections.
    patience = max(60.0, settings.scheduler_http_timeout_seconds)
    most = settings.connections_limit if connections is None else connections
    bounds = Bounds(most, body_seconds=patience, unread_seconds=patience)
    return Server(
        uvicorn.Config(
            service,
            host=settings.host,
            port=settings.port,
            loop="none",
            http=direct(bounds, service.at_once, service.may_schedule),
            ws="none",
            access_log=False,
            # The caller's address is that of the connection, whatever a header says.
            proxy_headers=False,
            log_config=None,
            # Go's client keeps idle connections for 90 s: the server must not close first.
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
            # A gang's binds come all at once, each on a connection of its own.
            backlog=_BACKLOG,
            ssl_context_factory=None if certificates is None else lambda config, default: certificates.context,
        )
    )


def bound(host: str, port: int) -> list[socket.socket]:
    """Returns sockets bound to every address of `host`, not yet listening. Raises CannotListen."""
    sockets: list[socket.socket] = []
    try:
        # asyncio switches Nagle's algorithm off only if the protocol is given.
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"host = {host!r}: {getattr(error, 'strerror', None) or error}") from error
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
    except OSError as error:
        for each in sockets:
            each.close()
        raise CannotListen(f"host = {host!r}, port = {port}: {error.strerror or error}") from error
    return sockets
