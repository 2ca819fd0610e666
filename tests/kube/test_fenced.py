"""Nothing is written but while the fence lets it pass: when it begins, when it takes long, when its bytes are sent."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from aiohttp import web

from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials
from extender.kube.client.fenced import Fenced
from extender.kube.client.sockets import forgetting
from extender.kube.errors import Away, Unavailable
from tests.kube.loopback_api import loader, serving
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio


class Gate:
    """A fence that a test opens and closes. It lets `passes` more checks through."""

    def __init__(self, passes: int = 1000, *, seconds: float = 0.5) -> None:
        self.passes = passes
        self.seconds = seconds

    def check(self) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise Unavailable("this replica does not lead: nothing is written")


class Noted:
    """What came through. `answers`: when it is answered; by default at once."""

    def __init__(self, answers: asyncio.Event | None = None) -> None:
        self.came: list[tuple[str, str, float]] = []
        self._answers = answers

    async def keep_warm(self, connections: int) -> None:
        raise NotImplementedError

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        self.came.append((method, path, given["within"]))
        if self._answers is not None:
            await self._answers.wait()
        return b"{}"

    def lines(self, path: str, *, silence: float) -> Any:
        raise NotImplementedError


async def test_what_may_be_written_is_good_for_as_long_as_the_fence_says() -> None:
    noted = Noted()
    fenced = Fenced(noted, Gate())
    await fenced.request("POST", "/a", b"{}")
    await fenced.request("PATCH", "/a?dryRun=All", b"{}", within=0.2)
    await fenced.request("GET", "/a")
    assert noted.came == [
        ("POST", "/a?timeout=500ms", 0.5),
        ("PATCH", "/a?dryRun=All&timeout=200ms", 0.2),
        ("GET", "/a", 30.0),
    ]


async def test_behind_a_closed_fence_reads_pass_and_nothing_else() -> None:
    noted = Noted()
    fenced = Fenced(noted, Gate(0))
    await fenced.request("GET", "/a")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(Unavailable, match="does not lead"):
            await fenced.request(method, "/a", b"{}")
    assert [method for method, *_ in noted.came] == ["GET"]


async def test_what_takes_longer_is_given_up() -> None:
    with pytest.raises(Away, match=r"no answer within 0\.5 s"):
        await Fenced(Noted(asyncio.Event()), Gate()).request("POST", "/a", b"{}")


async def test_what_is_being_written_is_over_when_it_is_answered_though_its_caller_has_left() -> None:
    """Else a leader that ends would wait for as long as it could take."""
    noted = Noted(answers := asyncio.Event())
    fenced = Fenced(noted, Gate(seconds=60))
    writing = asyncio.ensure_future(fenced.request("POST", "/a", b"{}"))
    await until(lambda: bool(noted.came))
    writing.cancel()
    quiet = asyncio.ensure_future(fenced.quiet())
    await until(writing.done)
    assert not quiet.done()
    answers.set()
    await until(quiet.done)


async def test_what_is_not_answered_may_be_carried_out_for_as_long_as_it_is_good_for() -> None:
    fenced = Fenced(Noted(asyncio.Event()), Gate(seconds=60))
    with pytest.raises(Away):
        await fenced.request("POST", "/a", b"{}", within=0.01)
    quiet = asyncio.ensure_future(fenced.quiet())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(quiet, 0.05)


async def test_no_byte_is_sent_once_the_fence_is_closed_however_long_ago_the_request_was_begun() -> None:
    """As of a process that was stopped in between, and woke when another led already."""
    came: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        await request.read()
        came.append(request.method)
        return web.Response(body=b"{}")

    async with serving(handler) as address:
        gate = Gate(2)
        async with Connection(await Credentials.load(loader(address)), gate) as connection:
            fenced = Fenced(connection, gate)
            assert await fenced.request("POST", "/a", b"{}") == b"{}"
            gate.passes = 1
            # The one check is spent where it begins; the one before its bytes finds the fence closed.
            with pytest.raises(Away, match="Can not write request body"):
                await fenced.request("POST", "/a", b"{}")
            assert await fenced.request("GET", "/a") == b"{}"
    assert came == ["POST", "GET"]


async def test_the_kernel_delivers_nothing_late() -> None:
    made = forgetting(0.5)((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)))
    try:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 500
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 0)
    finally:
        made.close()
