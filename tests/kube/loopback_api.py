"""A loopback API server: real HTTP, and answers that a test writes as handlers."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, Loader, Sources

Handler = Callable[[Any], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, trust: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Its address, for as long as the block runs. Connections still open at the end are cut."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"{'https' if trust else 'http'}://localhost:{port}" if trust else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def loader(address: str, *tokens: str) -> Loader:
    """A loader for that address; a further token each time it is asked, the last one for ever."""
    waiting = list(tokens)

    async def load(configuration: Any) -> Sources:
        configuration.host = address
        if waiting:
            token = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            configuration.api_key["BearerToken"] = f"Bearer {token}"
        return Sources()

    return load


@contextlib.asynccontextmanager
async def connected(handler: Handler, *tokens: str) -> AsyncIterator[Connection]:
    """A connection to a server that answers with `handler`."""
    times = iter(range(0, 10_000, 100))
    async with serving(handler) as address:
        credentials = await Credentials.load(loader(address, *tokens), now=lambda: float(next(times)))
        async with Connection(credentials) as connection:
            yield connection
