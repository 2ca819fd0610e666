"""What is answered where it was read is answered as through uvicorn: with the same bytes, in the same order."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.adapters.http.server.connections import Bounds
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


@pytest.mark.parametrize("seed", range(80))
async def test_however_requests_come_they_are_answered_as_by_uvicorn(seed: int) -> None:
    chance = random.Random(seed)
    requests = chance.choices(KEPT_OPEN, k=chance.randint(1, 12))
    whole = b"".join(requests)
    between = [end for end in accumulate(map(len, requests)) if chance.random() < 0.7]
    cuts = sorted({0, len(whole), *between, *(chance.randrange(len(whole)) for _ in range(chance.randint(0, 8)))})
    pieces = [(whole[at:to], chance.choice([0, 0.001, 0.1])) for at, to in pairwise(cuts)]
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
    assert b"the body ends after 0 of the %d announced bytes" % len(BODY) in line.told


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


# -- by sight


def without_parser(line: Line) -> Line:
    """Whatever has to be parsed fails from now on."""
    line.protocol.parser = None
    return line


async def test_a_head_that_came_before_is_not_parsed_again_on_any_connection() -> None:
    site = Site()
    first = site.line()
    first.send(request())
    for line in (without_parser(first), without_parser(site.line())):
        line.told = b""
        line.writes = 0
        line.send(request(json.dumps(filter_body(names=["another"])).encode()))
        assert line.status() == 200
        assert b"another" in line.told
        assert line.writes == 1


SMUGGLED = [
    request() + request(verb="prioritize"),
    request() + b"GET / HTTP/1.1\r\n",
    request() + b"\r\n",
    request() + b"\x00",
    b"\r\n" + request(),
    b"\n" + request(),
    request()[:-1],
    request(headers=b"Content-Length: 3\r\n"),
    request(headers=b"content-length: 3\r\n"),
    request(headers=b"Content-Length: %d\r\n" % len(BODY)),
    request(headers=b"Transfer-Encoding: chunked\r\n"),
    request(headers=b"Connection: close\r\n"),
    request(headers=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    request(headers=b"Expect: 100-continue\r\n"),
    request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    request().replace(b"Content-Length: ", b"Content-Length: +"),
    request().replace(b"Content-Length: ", b"Content-Length: 0"),
    request().replace(b"Content-Length: ", b"Content-Length:"),
    request().replace(b"Content-Length: ", b"Content-Length: 0x"),
    request().replace(b"Content-Length: ", b"Content-Length: 1"),
    request().replace(b"Content-Length: ", b"Content-Length: 99999999999999999999"),
    request().replace(b"\r\n\r\n", b" \r\n\r\n"),
    request().replace(b"\r\n\r\n", b"\n\n"),
    request(headers=b"X: a\n\nPOST /scheduler/prioritize HTTP/1.1\r\n"),
    request(method="post"),
    request(verb="filter%20"),
    request(verb="%66ilter"),
    request(verb="filter?a=b"),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("odd", SMUGGLED, ids=range(len(SMUGGLED)))
async def test_what_looks_like_a_call_and_is_none_is_taken_as_by_uvicorn(odd: bytes, known: bool) -> None:
    asked, of_twin = NotedVerbs(), NotedVerbs()
    site, twin = Site(app=service(asked)), Site(app=service(of_twin), direct=False)
    pieces = [(request(), 0.1), (odd, 0.1), (odd, 0.1), (request(), 0.1)]
    if known:
        # As by one who has all in memory already that it is going to see.
        await played(site, [(odd, 0.1)])
        asked.calls.clear()
    assert await played(site, pieces) == await played(twin, pieces)
    assert asked.calls == of_twin.calls


async def test_wherever_a_call_is_cut_it_is_answered_as_by_uvicorn() -> None:
    site, twin = Site(), Site(direct=False)
    whole = request()
    site.line().send(whole)
    expected = await played(twin, [(whole, 0.1), (whole, 0.1)])
    line = site.line()
    for at in range(1, len(whole)):
        line.told = b""
        line.send(whole[:at])
        line.send(whole[at:] + whole[:at])
        line.send(whole[at:])
        await asyncio.sleep(0.1)
        assert line.told == expected


@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_a_connection_on_which_nothing_comes_any_more_is_closed_when_uvicorn_would(calls: int) -> None:
    closed: list[float | None] = []
    for site in (Site(), Site(direct=False)):
        site.line().send(request())
        line, began = site.line(), asyncio.get_running_loop().time()
        for _ in range(calls):
            await asyncio.sleep(50)
            line.send(request())
        await asyncio.sleep(200)
        assert line.closed_at is not None
        closed.append(line.closed_at - began)
    assert closed[0] == pytest.approx(closed[1], abs=0.01)


async def test_a_server_that_ends_closes_it_and_has_counted_its_calls() -> None:
    site = Site()
    line = site.line()
    for _ in range(3):
        line.send(request())
    assert site.state.total_requests == 3
    line.protocol.shutdown()
    assert line.closed_at is not None
    await asyncio.sleep(1)
    assert not site.state.connections


async def test_before_the_cluster_is_read_a_head_that_is_known_helps_nobody() -> None:
    verbs, ready = NotedVerbs(), Ready()
    site = Site(app=service(verbs, ready=ready))
    site.line().send(request())
    ready.now = False
    line = site.line()
    line.send(request())
    await asyncio.sleep(0.1)
    assert (line.status(), len(verbs.calls)) == (503, 1)


# -- in pieces


def large(names: int = 5000) -> bytes:
    return request(json.dumps(filter_body(names=[f"n{number}" for number in range(names)])).encode())


async def test_the_rest_of_a_body_that_is_on_its_way_is_awaited_without_a_task() -> None:
    site = Site()
    line, whole = site.line(), large(20_000)
    third = len(whole) // 3
    for at in (0, third):
        line.send(whole[at : at + third])
        await asyncio.sleep(0.001)
    assert not site.state.tasks
    line.send(whole[2 * third :])
    assert (line.status(), line.writes) == (200, 1)
    assert not line.protocol.awaited


async def test_who_is_slow_with_the_rest_gets_a_task_that_waits_for_it() -> None:
    site = Site()
    line, whole = site.line(), large()
    line.send(whole[:1000])
    assert not site.state.tasks
    await asyncio.sleep(0.1)
    assert len(site.state.tasks) == 1
    assert not line.protocol.awaited
    line.send(whole[1000:])
    await asyncio.sleep(0.1)
    assert line.status() == 200


async def test_no_more_than_some_are_awaited_at_the_same_time() -> None:
    site = Site()
    lines, whole = [site.line() for _ in range(100)], large()
    for line in lines:
        line.send(whole[:1000])
    assert 0 < len(lines[0].protocol.awaited) < 20
    assert len(site.state.tasks) > 80
    for line in lines:
        line.send(whole[1000:])
    await asyncio.sleep(0.1)
    assert {line.status() for line in lines} == {200}
    assert not lines[0].protocol.awaited


@pytest.mark.parametrize(
    "whole",
    [
        large().replace(b"Content-Length", b"Expect: 100-continue\r\nContent-Length"),
        large().replace(b"Content-Length", b"Connection: close\r\nContent-Length"),
        b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n" + b"a" * 2000,
        in_chunks(BODY * 10, 100),
    ],
    ids=["who asks whether to go on", "who wants it closed", "a body that is too large for it", "who does not say"],
)
async def test_whoever_else_comes_in_pieces_is_not_awaited(whole: bytes) -> None:
    site = Site()
    line = site.line()
    line.send(whole[:1000])
    assert not line.protocol.awaited
    assert len(site.state.tasks) == 1
    await asyncio.sleep(0.1)


async def test_who_leaves_while_the_rest_of_its_body_is_awaited_leaves_nothing() -> None:
    verbs = NotedVerbs()
    site = Site(app=service(verbs))
    line = site.line()
    line.send(large()[:1000])
    line.abort()
    await asyncio.sleep(0.001)
    assert not line.protocol.awaited
    await asyncio.sleep(0.1)
    assert not site.state.tasks
    assert verbs.calls == []
