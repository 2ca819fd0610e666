"""The extender's HTTP client, against a server on a socket of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kubesim.scheduler import ExtenderFailed, HttpExtender

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Sockets know nothing of virtual time."""
    return "asyncio"


class Server:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.peers: set[object] = set()
        self.status = 200
        self.hold: asyncio.Event | None = None

    async def handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.requests.append((request.path, request.content_type, await request.read()))
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(body=b'{"Error":""}', status=self.status)


@asynccontextmanager
async def _reached(server: Server) -> AsyncIterator[HttpExtender]:
    app = web.Application()
    app.router.add_post("/scheduler/{verb}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    client = HttpExtender(f"http://{host}:{port}/scheduler/")
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


async def test_bodies_are_posted_as_json_over_one_connection() -> None:
    server = Server()
    async with _reached(server) as client:
        assert await client.call("filter", b'{"Pod":{}}') == b'{"Error":""}'
        await client.call("bind", b"{}")
    assert server.requests == [
        ("/scheduler/filter", "application/json", b'{"Pod":{}}'),
        ("/scheduler/bind", "application/json", b"{}"),
    ]
    assert len(server.peers) == 1


@pytest.mark.parametrize("status", [201, 400, 503])
async def test_only_200_counts(status: int) -> None:
    server = Server()
    server.status = status
    async with _reached(server) as client:
        with pytest.raises(
            ExtenderFailed, match=f"^failed filter with extender at URL http://.*/filter, code {status}$"
        ):
            await client.call("filter", b"{}")


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    client = HttpExtender(f"http://127.0.0.1:{port}/scheduler")
    try:
        with pytest.raises(ExtenderFailed) as failure:
            await client.call("filter", b"{}")
    finally:
        await client.close()
    url = f"http://127.0.0.1:{port}/scheduler/filter"
    assert str(failure.value) == f'Post "{url}": dial tcp 127.0.0.1:{port}: connect: connection refused'


async def test_a_call_that_is_given_up_is_given_up() -> None:
    server = Server()
    server.hold = asyncio.Event()
    async with _reached(server) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.call("bind", b"{}")
        server.hold.set()
