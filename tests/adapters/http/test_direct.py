"""What is answered where it was read is answered as through uvicorn: with the same bytes, in the same order."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.adapters.http.connections import Bounds
from tests.adapters.http.connected import Line, Site
from tests.adapters.http.fakes import NotedVerbs, Ready, bind_body, filter_body, service
from tests.adapters.http.pass_through import PassThrough

pytestmark = pytest.mark.anyio

REQUESTS = {
    f"{file.parent.name}/{file.name.removesuffix('.request.json')}": file.read_bytes()
    for file in sorted((Path(__file__).parent / "golden").glob("n*/*.request.json"))
}
BODY = json.dumps(filter_body()).encode()


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


def request(body: bytes = BODY, verb: str = "filter", method: str = "POST", headers: bytes = b"") -> bytes:
    head = b"%s /scheduler/%s HTTP/1.1\r\nHost: x\r\n%s" % (method.encode(), verb.encode(), headers)
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def answered_through_uvicorn(line: Line, whole: bytes) -> bytes:
    """As where a request comes in pieces."""
    line.send(whole[:-1])
    await asyncio.sleep(0.1)
    line.send(whole[-1:])
    await asyncio.sleep(0.1)
    return line.told


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_was_recorded_is_answered_with_the_same_bytes(name: str) -> None:
    site = Site(app=service(PassThrough()))
    whole = request(REQUESTS[name], name.split("-")[1])
    line = site.line()
    line.send(whole)
    await asyncio.sleep(0.1)
    assert line.told == await answered_through_uvicorn(site.line(), whole)


@pytest.mark.parametrize(
    "refused",
    [
        request(b"{"),
        request(b"{}"),
        request(b'{"Pod": null, "Nodes": null, "NodeNames": []}'),
        request(json.dumps(filter_body({"metadata": {}, "spec": {}})).encode(), "prioritize"),
        request(b"{}", "preempt"),
        request(verb="nothing"),
        request(method="PUT"),
        request(BODY.ljust(2000)),
    ],
    ids=["no JSON", "no pod", "null pod", "no containers", "no victims", "no verb", "PUT", "too large"],
)
async def test_what_is_refused_is_refused_in_the_same_words(refused: bytes) -> None:
    site = Site(app=service(body_limit=1500))
    line = site.line()
    line.send(refused)
    await asyncio.sleep(0.1)
    assert line.told == await answered_through_uvicorn(site.line(), refused)
    assert b"application/problem+json" in line.told


def in_chunks(body: bytes, size: int) -> bytes:
    head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


KEPT_OPEN = [
    request(),
    request(verb="prioritize"),
    request(json.dumps(filter_body(names=[f"n{number}" for number in range(5000)])).encode()),
    in_chunks(BODY, 1),
    in_chunks(BODY, 100),
    request(headers=b"Expect: 100-continue\r\n"),
    request(json.dumps(bind_body()).encode(), "bind"),
    request(b"{"),
    request(b""),
    request(verb="nothing"),
    request(method="PUT"),
    request(headers=b"X-A: " + b"a" * 30_000 + b"\r\n"),
    b"\r\n" + request(),
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
]


async def played(site: Site, pieces: list[tuple[bytes, float]]) -> bytes:
    """What is told where these come, with so many seconds after each."""
    line = site.line()
    for piece, seconds in pieces:
        line.send(piece)
        await asyncio.sleep(seconds)
    await asyncio.sleep(1)
    return line.told


@pytest.mark.parametrize("seed", range(40))
async def test_however_requests_come_they_are_answered_as_by_uvicorn(seed: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(chance.choices(KEPT_OPEN, k=chance.randint(1, 6)))
    cuts = sorted({0, len(whole), *(chance.randrange(len(whole)) for _ in range(chance.randint(0, 8)))})
    pieces = [(whole[at:to], chance.choice([0, 0.1])) for at, to in pairwise(cuts)]
    asked, of_twin = NotedVerbs(), NotedVerbs()
    twin = Site(app=service(of_twin), direct=False)
    assert await played(Site(app=service(asked)), pieces) == await played(twin, pieces)
    assert asked.calls == of_twin.calls


async def test_who_would_speak_another_protocol_is_told_that_its_body_is_missing() -> None:
    """What follows such a head is that protocol's, whatever length was announced."""
    line = Site().line()
    line.send(request(headers=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"))
    await asyncio.sleep(0.1)
    assert line.status() == 400
    assert b"the body ends after 0 of the %d bytes that were announced" % len(BODY) in line.told


async def test_before_the_cluster_is_read_nobody_is_asked() -> None:
    verbs, ready = NotedVerbs(), Ready()
    ready.now = False
    line = Site(app=service(verbs, ready=ready)).line()
    line.send(request())
    await asyncio.sleep(0.1)
    assert (line.status(), verbs.calls) == (503, [])


async def test_it_is_answered_at_once_and_in_one_piece() -> None:
    line = Site().line()
    line.send(request())
    assert line.status() == 200
    assert line.writes == 1
    line.send(request())
    assert line.told.count(b"HTTP/1.1 200") == 2


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    verbs = NotedVerbs()
    line = Site(app=service(verbs)).line()
    bodies = [json.dumps(filter_body(names=[f"n{number}"])).encode() for number in range(4)]
    pieces = b"".join(map(request, bodies))
    line.send(pieces[:-1])
    await asyncio.sleep(0.1)
    line.send(pieces[-1:])
    await asyncio.sleep(0.1)
    places = [line.told.index(b'["n%d"]' % number) for number in range(4)]
    assert places == sorted(places)


async def test_behind_one_that_waits_the_next_waits_too() -> None:
    verbs = NotedVerbs()
    verbs.gate = asyncio.Event()
    line = Site(app=service(verbs)).line()
    line.send(request(json.dumps(bind_body()).encode(), "bind") + request())
    line.send(request())
    await asyncio.sleep(10)
    assert not line.told
    verbs.gate.set()
    await asyncio.sleep(0.1)
    assert line.told.count(b"HTTP/1.1 200") == 3
    assert line.told.index(b'"Error"') < line.told.index(b'"NodeNames"')


@pytest.mark.parametrize("headers", [b"Connection: close\r\n", b"Expect: 100-continue\r\n"])
async def test_what_a_caller_wants_of_the_connection_is_done(headers: bytes) -> None:
    line = Site().line()
    line.send(request(headers=headers))
    await asyncio.sleep(0.1)
    if b"close" in headers:
        assert line.status() == 200
        assert line.closed_at is not None
    else:
        assert line.told.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")


async def test_who_reads_no_answers_gets_no_more_of_them() -> None:
    line = Site(Bounds(unread_seconds=60)).line(room=10)
    line.send(request())
    told = line.told
    line.send(request())
    await asyncio.sleep(1)
    assert line.told == told
    line.read_all()
    await asyncio.sleep(1)
    assert line.told.count(b"HTTP/1.1 200") == 2


async def test_a_head_that_is_too_large_is_refused_though_all_is_there() -> None:
    verbs = NotedVerbs()
    line = Site(app=service(verbs)).line()
    line.send(request(headers=b"X-A: " + b"a" * 70_000 + b"\r\n"))
    assert (line.status(), verbs.calls) == (431, [])


async def test_no_request_is_answered_before_one_that_is_no_http() -> None:
    verbs = NotedVerbs()
    line = Site(app=service(verbs)).line()
    line.send(request() + b"\x00\x00\r\n\r\n")
    await asyncio.sleep(2)
    assert line.told.count(b"HTTP/1.1") <= 1
    assert verbs.calls == []
    assert line.closed_at is not None


async def test_a_defect_is_told_and_the_connection_goes_on() -> None:
    def fails(body: bytes) -> bytes:
        raise ValueError("a defect")

    app = service()
    line = Site(app=app).line()
    calls: dict[str, Callable[[bytes], bytes]] = app.calls.at_once
    filtering, calls["filter"] = calls["filter"], fails
    with capture_logs() as logs:
        line.send(request())
    assert [each["event"] for each in logs] == ["request failed"]
    assert line.status() == 500
    assert b"traceback" in line.told
    calls["filter"] = filtering
    line.told = b""
    line.send(request())
    assert line.status() == 200


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_connection_that_waits_for_its_next_request_keeps_nothing_of_the_last(pieces: int) -> None:
    """There may be ten thousand of them."""
    app = service(PassThrough())
    line = Site(app=app).line()
    whole = request(json.dumps(filter_body(names=[f"node-{number}" for number in range(10_000)])).encode())
    tracemalloc.start()
    try:
        line.send(whole) if pieces == 1 else await answered_through_uvicorn(line, whole)
        line.told = b""
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < len(whole) // 2
    finally:
        tracemalloc.stop()
