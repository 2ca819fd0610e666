"""Fenced: a connection through which nothing is written unless that is surely over before somebody else may begin.

Reads pass. A write is refused where the fence does not let it begin, and given up after the fence's seconds; that the
API server does not carry it out later either, it is told how long the request is good for. Must not know who sets the
fence, nor what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from extender.kube.connection import Fence
from extender.kube.errors import Away, Refused, Unavailable
from extender.kube.requests import JSON, TIMEOUT, Requests

READS = ("GET", "HEAD")


class Warm(Requests, Protocol):
    async def keep_warm(self, connections: int) -> None: ...


class Fenced:
    """Implements `Requests` and `bootstrap.Cluster` over another."""

    def __init__(
        self, inner: Warm, fence: Fence, heard: Callable[[bool, Exception | None], None] = lambda writes, error: None
    ) -> None:
        """`heard` is told of each request that was sent whether it is a write, and what it raised."""
        self._inner = inner
        self._fence = fence
        self._heard = heard
        self._open: dict[asyncio.Task[bytes], float] = {}
        """Writes that may still be carried out, and until when at most."""
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
        """As of the other. Raises Unavailable where the fence does not let it begin. What is being written goes on when
        its caller has left: so it is known when that is over."""
        ask = partial(self._inner.request, method, body=body, content_type=content_type, accept=accept)
        if method in READS:
            return await self._read(ask(path, within=within))
        self._fence.check()
        within = min(within, self._fence.seconds)
        now = asyncio.get_running_loop().time()
        # Those that began first are over first: nobody goes through a gang's Bindings at each of them.
        while self._open and self._open[oldest := next(iter(self._open))] <= now:
            del self._open[oldest]
        write = asyncio.ensure_future(_write(ask, method, path, within))
        self._open[write] = now + self._fence.seconds
        write.add_done_callback(self._answered)
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
        """It is over, if the API server has said so; it took too long for that where it is not there any more."""
        if write.cancelled():
            return
        error = write.exception()
        if error is None or isinstance(error, Unavailable | Refused):
            self._heard(True, error)
        if error is None or isinstance(error, Refused):
            self._open.pop(write, None)
            self._ended.set()

    async def quiet(self) -> None:
        """Every write that had begun is over, and will not be carried out later. For when the fence lets none begin."""
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
        # Whatever it is that takes so long: credentials, a free connection, the network, the API server.
        async with asyncio.timeout(within):
            return await ask(_good_for(path, within), within=within)
    except TimeoutError as error:
        raise Away(f"{method} {path}: no answer within {within:g} s") from error


def _good_for(path: str, seconds: float) -> str:
    """The path of the same request, which the API server gives up after so many seconds from its arrival."""
    return f"{path}{'&' if '?' in path else '?'}timeout={round(seconds * 1000)}ms"
