"""Where the service listens: its sockets, its certificates looked at beforehand, and uvicorn without hands of its own.

What cannot be is said before anything else begins, for whoever set it up. Must not know what is served.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import uvicorn

from extender.adapters.http.connections import Bounds
from extender.adapters.http.direct import Served, direct
from extender.settings import Settings

_BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, if net.core.somaxconn allows as many."""


class CannotListen(Exception):
    """The address or the certificates cannot be used; `str()` names the setting, its value and what is wrong."""


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


def http_server(service: Served, settings: Settings, connections: int | None = None) -> Server:
    """What listens, as kube-scheduler needs it. `connections`: how many may be open, where it is fewer than set."""
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
            http=direct(bounds, service.at_once),
            ws="none",
            access_log=False,
            log_config=None,
            # Go's client keeps idle connections for 90 s: we must not close first.
            timeout_keep_alive=120,
            timeout_graceful_shutdown=5,
            # A gang's binds come all at once, each on a connection of its own.
            backlog=_BACKLOG,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            ssl_ca_certs=str(settings.tls_client_ca) if settings.tls_client_ca else None,
            ssl_cert_reqs=2 if settings.tls_client_ca else 0,
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


def check_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """The files can be read, and the key is the certificate's. Raises CannotListen."""
    for name, path in (("tls_certificate", certificate), ("tls_client_ca", client_ca)):
        if path is not None:
            _check_readable(name, path)
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
            except ssl.SSLError as error:
                raise CannotListen(f"{name} = {path}: no certificate (PEM) is in it") from error
    if certificate is None or key is None:
        return
    _check_readable("tls_key", key)

    def refuse() -> NoReturn:
        # Left alone OpenSSL asks for it at the terminal.
        raise CannotListen(f"tls_key = {key}: it is encrypted; give one that needs no pass phrase")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"it is not the key of tls_certificate = {certificate}"
        else:
            why = f"no private key (PEM) that can be used is in it{f': {error.reason}' if error.reason else ''}"
        raise CannotListen(f"tls_key = {key}: {why}") from error


def _check_readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise CannotListen(f"{name} = {path}: {error.strerror or error}") from error
