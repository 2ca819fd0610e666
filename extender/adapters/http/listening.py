"""Where the service listens: its sockets, and uvicorn without hands of its own.

What cannot be is said before anything else begins, for whoever set it up. Must not know what is served.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from extender.adapters.http.connections import Bounds
from extender.adapters.http.fast_path import Served, direct
from extender.adapters.http.tls import CannotListen, ServedCertificates
from extender.settings import Settings

_BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, if net.core.somaxconn allows as many."""


class Server(uvicorn.Server):
    """uvicorn, whose end is its owner's affair: it takes no signals, and raises CannotListen instead of exiting."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn raises what it took again when it has ended, and so ends the process before anything else is closed.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:
            # Two may have an address, until one of them listens.
            raise CannotListen(f"cannot listen: {error.strerror or error}") from error

    async def answered(self) -> None:
        """No call is under way, at this moment."""
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)


def http_server(
    service: Served,
    settings: Settings,
    connections: int | None = None,
    certificates: ServedCertificates | None = None,
) -> Server:
    """What listens, as kube-scheduler needs it; by https if there are certificates. `connections`: how many may be
    open, where it is fewer than set."""
    # Afterwards kube-scheduler no longer waits; others may be behind slower lines than it.
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
            # Who calls is who has connected, whatever a header says of it.
            proxy_headers=False,
            log_config=None,
            # Go's client keeps idle connections for 90 s: we must not close first.
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
            # A gang's binds come all at once, each on a connection of its own.
            backlog=_BACKLOG,
            ssl_context_factory=None if certificates is None else lambda config, default: certificates.context,
        )
    )


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets with every address of `host`; nobody can connect before a server listens on them. Raises CannotListen."""
    sockets: list[socket.socket] = []
    try:
        # The protocol is named, for only then asyncio switches Nagle's algorithm off.
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
