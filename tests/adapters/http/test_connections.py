"""What one connection may take: bytes of a head, seconds for head, body and answer; and how many there may be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.adapters.http.server.bodies import BodyRoom
from extender.adapters.http.server.connections import Bounds
from extender.adapters.http.server.listening import http_server
from extender.settings.settings import Settings
from tests.adapters.http.connected import Site
from tests.adapters.http.fakes import NotedVerbs, bind_body, filter_body, listening, service

pytestmark = pytest.mark.anyio

KIB, MIB = 2**10, 2**20
HEAD = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps(filter_body()).encode()


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


# -- bytes of a head


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /",
        HEAD + b"X-A: ",
        HEAD + b"X-",
        HEAD + b"Content-Length: 2\r\n\r\n{}" + HEAD + b"X-A: ",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: ",
    ],
    ids=["url", "value", "name", "the second request", "chunk extension", "trailer"],
)
async def test_what_is_not_body_is_bounded_wherever_it_is(beginning: bytes) -> None:
    line = Site().line()
    line.send(beginning)
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    line.told = b""
    sent = 0
    while not line.told and not line.ended:
        line.send(b"a" * 4096)
        sent += 4096
        assert sent <= 2 * 64 * KIB, "it goes on for ever"
    assert line.problem()["title"] == "The request's head is too large"
    assert line.status() == 431
    for _ in range(1000):
        line.send(b"a" * 65536)
    assert line.status() == 431
    await asyncio.sleep(2)
    assert line.closed_at is not None


@pytest.mark.parametrize("separator", [b"\r\n", b"\r\n\r\n"])
async def test_empty_lines_before_a_request_are_bounded_too(separator: bytes) -> None:
    line = Site().line()
    for _ in range(100):
        line.send(separator * 1000)
    assert line.status() == 431


async def test_a_head_that_comes_whole_in_one_piece_is_measured_as_well() -> None:
    verbs = NotedVerbs()
    line = Site(app=service(verbs)).line()
    line.send(HEAD + b"X-A: " + b"a" * 70_000 + b"\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    await asyncio.sleep(0.1)
    assert line.problem()["detail"] == "request line and headers are longer than 65536 bytes"
    assert verbs.calls == []


async def test_heads_below_the_bound_are_taken_one_after_the_other_on_one_connection() -> None:
    line = Site().line()
    for number in range(50):
        line.send(GET + b"X-A: " + b"a" * 60_000 + b"\r\n\r\n")
        await asyncio.sleep(0.1)
        assert line.told.count(b"HTTP/1.1 200") == number + 1
    assert line.closed_at is None


@pytest.mark.parametrize("chunk", [1, 100, 200_000])
async def test_the_frames_of_a_body_in_many_chunks_are_no_head(chunk: int) -> None:
    line = Site().line()
    line.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    padded = BODY.ljust(50_000 if chunk < 1000 else 600_000)
    pieces = [padded[at : at + chunk] for at in range(0, len(padded), chunk)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"
    for at in range(0, len(framed), 65536):
        line.send(framed[at : at + 65536])
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert line.status() == 200


# -- seconds


@pytest.mark.parametrize("half", [b"P", HEAD, HEAD + b"X-A: ", b"\r\n"])
async def test_half_a_head_is_waited_for_so_long_and_no_longer(half: bytes) -> None:
    line = Site(Bounds(head_seconds=10)).line()
    line.send(half)
    await asyncio.sleep(9.9)
    assert not line.told
    await asyncio.sleep(0.2)
    assert line.status() == 408
    assert line.problem()["detail"] == "the head was not complete after 10 s"
    await asyncio.sleep(2)
    assert line.closed_at is not None


async def test_a_head_that_drips_gets_no_more_time() -> None:
    line = Site(Bounds(head_seconds=10)).line()
    for at in range(len(HEAD)):
        line.send(HEAD[at : at + 1])
        await asyncio.sleep(1)
    assert line.status() == 408


async def test_a_body_of_which_no_more_comes_is_not_waited_for() -> None:
    verbs = NotedVerbs()
    line = Site(Bounds(stall_seconds=10), service(verbs)).line()
    line.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:-5])
    await asyncio.sleep(9.9)
    line.send(BODY[-5:-4])
    await asyncio.sleep(9.9)
    assert not line.told
    await asyncio.sleep(10.2)
    assert line.status() == 408
    assert line.problem()["detail"] == "no body data arrived for 10 s"
    line.send(BODY[-4:])
    await asyncio.sleep(2)
    assert line.closed_at is not None
    assert verbs.calls == []


async def test_a_body_that_drips_has_its_time_all_in_all() -> None:
    line = Site(Bounds(stall_seconds=10, body_seconds=60)).line()
    line.send(HEAD + b"Content-Length: 1000\r\n\r\n")
    for _ in range(59):
        line.send(b" ")
        await asyncio.sleep(1)
    assert not line.told
    await asyncio.sleep(2)
    assert line.problem()["detail"] == "the body was not complete after 60 s"


async def test_a_slow_body_in_time_is_answered_and_so_is_the_next() -> None:
    line = Site().line()
    for number in range(3):
        line.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY))
        for at in range(0, len(BODY), 50):
            line.send(BODY[at : at + 50])
            await asyncio.sleep(5)
        assert line.told.count(b"HTTP/1.1 200") == number + 1
    await asyncio.sleep(100)
    assert line.closed_at is None
    await asyncio.sleep(30)
    assert line.closed_at is not None


async def test_while_we_take_nothing_nobody_else_is_slow() -> None:
    """As where a body waits for room beside others."""
    begun: list[float] = []

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(40)
        begun.append(asyncio.get_running_loop().time())
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    line = Site(app=late).line()
    line.send(HEAD + b"Content-Length: 200000\r\n\r\n" + b" " * 100_000)
    await asyncio.sleep(41)
    line.send(b" " * 100_000)
    await asyncio.sleep(1)
    assert begun
    assert line.status() == 200


async def test_a_stalled_body_holds_its_room_no_longer_than_its_time() -> None:
    room = BodyRoom(100 * KIB, longest_wait=5)
    site = Site(Bounds(stall_seconds=10), service(room=room))
    stalled, early, late = (site.line() for _ in range(3))
    stalled.send(HEAD + b"Content-Length: 80000\r\n\r\n" + BODY)
    await asyncio.sleep(1)
    large = HEAD + b"Content-Length: 60000\r\n\r\n" + BODY
    early.send(large)
    await asyncio.sleep(6)
    late.send(large)
    assert early.status() == 503
    await asyncio.sleep(4)
    assert stalled.status() == 408
    late.send(b" " * (60_000 - len(BODY)))
    await asyncio.sleep(1)
    assert late.status() == 200
    assert room.taken == 0


async def test_the_rest_of_a_body_that_was_refused_is_not_taken_for_ever() -> None:
    line = Site(Bounds(body_seconds=60)).line()
    line.send(b"POST /scheduler/nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100):
        line.send(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        await asyncio.sleep(1)
    assert line.status() == 404
    assert line.told.count(b"HTTP/1.1") == 1
    assert line.closed_at is not None


async def test_a_connection_that_is_never_used_is_closed_like_an_idle_one() -> None:
    line = Site().line()
    await asyncio.sleep(119)
    assert line.closed_at is None
    await asyncio.sleep(3)
    assert line.closed_at is not None
    assert not line.told


async def test_a_bind_at_its_barrier_is_waited_for_however_long_it_takes() -> None:
    verbs = NotedVerbs()
    verbs.gate = asyncio.Event()
    line = Site(app=service(verbs)).line()
    body = json.dumps(bind_body()).encode()
    line.send(b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await asyncio.sleep(3600)
    assert not line.told
    verbs.gate.set()
    await asyncio.sleep(0.1)
    assert line.status() == 200
    assert line.closed_at is None


@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("keeps", [b"", b"Connection: close\r\n"])
async def test_an_answer_that_nobody_reads_is_given_up(room: int, keeps: bytes) -> None:
    line = Site(Bounds(unread_seconds=60)).line(room=room)
    line.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n" + keeps + b"\r\n")
    await asyncio.sleep(59)
    assert line.closed_at is None
    await asyncio.sleep(2)
    assert line.closed_at is not None


async def test_an_answer_that_is_read_in_time_costs_nothing() -> None:
    line = Site(Bounds(unread_seconds=60)).line(room=10)
    line.send(GET + b"\r\n")
    await asyncio.sleep(50)
    line.read_all()
    await asyncio.sleep(50)
    assert line.closed_at is None
    line.send(GET + b"\r\n")
    await asyncio.sleep(1)
    assert line.told.count(b"HTTP/1.1 200") == 2


# -- how many


async def test_one_connection_too_many_is_told_so_and_those_before_it_go_on() -> None:
    site = Site(Bounds(connections=3))
    first = [site.line() for _ in range(3)]
    with capture_logs() as lines:
        surplus = [site.line() for _ in range(10)]
    assert {line.status() for line in surplus} == {503}
    assert surplus[0].problem()["detail"] == "all 3 allowed connections are open (setting connections_limit)"
    assert b"Retry-After: 1" in surplus[0].told
    assert [each["event"] for each in lines] == ["no more connections are accepted"]
    for line in first:
        line.send(GET + b"\r\n")
    await asyncio.sleep(2)
    assert [line.status() for line in first] == [200] * 3
    assert len(site.state.connections) == 3
    first[0].close()
    await asyncio.sleep(0)
    after = site.line()
    after.send(GET + b"\r\n")
    await asyncio.sleep(0.1)
    assert after.status() == 200


async def test_far_too_many_are_closed_without_a_word() -> None:
    site = Site(Bounds(connections=3))
    lines = [site.line() for _ in range(1000)]
    assert sum(line.closed_at is None for line in lines) == 3 + 64
    await asyncio.sleep(2)
    assert len(site.state.connections) == 3


# -- what is no HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
async def test_what_is_no_http_is_refused_as_problem_details_and_the_connection_closed(sent: bytes) -> None:
    line = Site().line()
    line.send(sent)
    await asyncio.sleep(2)
    assert line.problem()["title"] == "The request is not HTTP"
    assert line.status() == 400
    assert line.closed_at is not None


async def test_over_tls_where_no_half_can_be_closed_the_whole_is() -> None:
    line = Site().line(half_closes=False)
    line.send(b"hello\r\n\r\n")
    assert line.status() == 400
    assert line.closed_at is not None
    stuck = Site().line(half_closes=False, room=10)
    stuck.send(b"hello\r\n\r\n")
    assert stuck.closed_at is None
    await asyncio.sleep(2)
    assert stuck.closed_at is not None


@pytest.mark.parametrize("half_closes", [True, False])
async def test_a_refusal_that_is_read_slowly_keeps_nothing_open(half_closes: bool) -> None:
    line = Site().line(half_closes=half_closes, room=10)
    line.send(b"hello\r\n\r\n")
    await asyncio.sleep(0.5)
    line.read_all()
    await asyncio.sleep(1)
    assert line.closed_at is not None


async def test_what_follows_a_call_that_is_not_yet_answered_is_never_taken_for_its_answer() -> None:
    verbs = NotedVerbs()
    verbs.gate = asyncio.Event()
    line = Site(app=service(verbs)).line()
    body = json.dumps(bind_body()).encode()
    line.send(b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await asyncio.sleep(1)
    line.send(b"garbage\r\n\r\n")
    await asyncio.sleep(2)
    assert line.closed_at is not None
    assert not line.told
    verbs.gate.set()
    await asyncio.sleep(1)
    assert len(verbs.bound) == 1


# -- the whole server, in real time


@pytest.fixture
def real_time() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[int]:
    """The port of a server as `escher serve` makes it."""
    listener = listening()
    server = http_server(service(), Settings.model_validate({"port": 0, **settings}))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def test_a_head_without_end_is_refused_over_a_real_connection_and_others_are_served(real_time: asyncio.Runner) -> None:
    async def flood() -> None:
        async with served() as port, asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"X-B: ")
            told, sent = asyncio.create_task(reader.read()), 0
            with suppress(ConnectionError):
                while not told.done() and sent < 50 * MIB:
                    writer.write(b"a" * 65536)
                    await writer.drain()
                    sent += 65536
            assert sent < 50 * MIB, "all of it was taken"
            assert (await told).startswith(b"HTTP/1.1 431")
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"Connection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()

    real_time.run(flood())


def test_the_settings_bound_the_connections_of_a_real_server(real_time: asyncio.Runner) -> None:
    async def crowd() -> None:
        async with served(connections_limit=100) as port, asyncio.timeout(20):
            lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            for _, writer in lines:
                writer.write(GET + b"\r\n")
            for reader, _ in lines:
                assert (await reader.read(12)) == b"HTTP/1.1 200"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert (await reader.read()).startswith(b"HTTP/1.1 503")
            for _, each in [*lines, (reader, writer)]:
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    real_time.run(crowd())
