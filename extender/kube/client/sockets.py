"""Sockets to the API server: kept alive by the kernel and closed once; some never deliver late.

This works around a defect of uvloop (0.23). If the server resets a connection at the start of the TLS handshake, uvloop
closes the descriptor, but not aiohttp's socket object. When that object is closed or collected later, it closes the
descriptor again, which may be another connection by then. libuv then aborts the whole process.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any


class Socket(socket.socket):
    """A socket that closes its descriptor only if the descriptor is still its own."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._identity = _identity(self.fileno())

    def close(self) -> None:
        if self.fileno() >= 0 and _identity(self.fileno()) != self._identity:
            self.detach()
        super().close()

    def __del__(self) -> None:
        self.close()


def kept_alive(info: Any) -> socket.socket:
    """A socket whose kernel detects within half a minute that the other side has vanished."""
    family, kind, protocol, *_ = info
    made = Socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE_OPTIONS:
        made.setsockopt(socket.IPPROTO_TCP, name, value)
    return made


def forgetting(seconds: float) -> Callable[[Any], socket.socket]:
    """As `kept_alive`, but drops data unacknowledged for `seconds`, or unsent at the close."""

    def made(info: Any) -> socket.socket:
        # Otherwise the kernel would deliver the data when the network allows, minutes later.
        sock = kept_alive(info)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for name, value in _options((("TCP_USER_TIMEOUT", max(1, round(seconds * 1000))),)):
            sock.setsockopt(socket.IPPROTO_TCP, name, value)
        return sock

    return made


def _identity(descriptor: int) -> tuple[int, int] | None:
    """The file behind the descriptor; None if there is none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _options(wanted: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
    return [(getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]


_KEEP_ALIVE_OPTIONS = _options((("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)))
