"""Fenced: a connection whose writes surely end before another replica may begin to write.

Reads pass. The fence must allow a write to begin, and the write is given up after the fence's seconds. Each request
carries its timeout, so the API server does not carry it out later either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from extender.kube.client.connection import Fence
from extender.kube.client.requests import JSON, TIMEOUT, Requests
from extender.kube.errors import Away, Refused, Unavailable

READS = ("GET", "HEAD")


class Warm(Requests, Protocol):
    async def keep_warm(self, connections: int) -> None: ...


class Fenced:
    """`Requests` and `bootstrap.Cluster` over another one."""

    def __init__(
        self, inner: Warm, fence: Fence, heard: Callable[[bool, Exception | None], None] = lambda writes, error: None
    ) -> None:
        """`heard` is called for each sent request: whether it is a write, and what it raised."""
        self._inner = inner
        self._fence = fence
        self._heard = heard
        self._open: dict[asyncio.Task[bytes], float] = {}
        """Writes that may still take effect, and until when at most."""
        self._ended = asyncio.Event()

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        """As of the inner one. Raises Unavailable if the fence does not allow the write."""
        ask = partial(self._inner.request, method, body=body, content_type=content_type, accept=accept)
        if method in READS:
            return await self._read(ask(path, within=within))
        self._fence.check()
        within = min(within, self._fence.seconds)
        now = asyncio.get_running_loop().time()
        # The oldest writes end first, so no request searches all Bindings of a gang.
        while self._open and self._open[oldest := next(iter(self._open))] <= now:
            del self._open[oldest]
        write = asyncio.ensure_future(_write(ask, method, path, within))
        self._open[write] = now + self._fence.seconds
        write.add_done_callback(self._answered)
        # The write continues after its caller is cancelled, so that its end is known.
        return await asyncio.shield(write)

    async def _read(self, asked: Awaitable[bytes]) -> bytes:
        try:
            answer = await asked
        except (Unavailable, Refused) as error:
            self._heard(False, error)
            raise
        self._heard(False, None)
        return answer

    def _answered(self, write: asyncio.Task[bytes]) -> None:
        """Removes the write after success or Refused; otherwise it stays until its time limit."""
        if write.cancelled():
            return
        error = write.exception()
        if error is None or isinstance(error, Unavailable | Refused):
            self._heard(True, error)
        if error is None or isinstance(error, Refused):
            self._open.pop(write, None)
            self._ended.set()

    async def quiet(self) -> None:
        """Waits until every write has ended for good. For when the fence allows no new one."""
        loop = asyncio.get_running_loop()
        while (until := max(self._open.values(), default=0.0)) > loop.time():
            self._ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._ended.wait()

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)


async def _write(ask: Callable[..., Awaitable[bytes]], method: str, path: str, within: float) -> bytes:
    try:
        # The limit covers everything: credentials, a free connection, the network, the API server.
        async with asyncio.timeout(within):
            return await ask(_good_for(path, within), within=within)
    except TimeoutError as error:
        raise Away(f"{method} {path}: no answer within {within:g} s") from error


def _good_for(path: str, seconds: float) -> str:
    """The path with a timeout: the API server gives up `seconds` after the request's arrival."""
    return f"{path}{'&' if '?' in path else '?'}timeout={round(seconds * 1000)}ms"
