"""Requests over real HTTP: what was answered, or the right error in the API server's own words."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import trustme
from aiohttp import web

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.core.cluster import Node
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, Sources
from extender.kube.client.requests import MERGE_PATCH, address, refusal
from extender.kube.errors import Expired, Gone, Occupied, Refused, Silent, Terminating, Unavailable
from tests.adapters.kubernetes.manifests import bookmark, encode, event, node, page, status
from tests.adapters.kubernetes.scripted_api import RecordingSink
from tests.kube.loopback_api import connected, loader, serving

pytestmark = pytest.mark.anyio


def answering(code: int, body: bytes, **headers: str) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=code, body=body, headers={key.replace("_", "-"): it for key, it in headers.items()})

    return handler


async def lines_of(connection: Connection, path: str = "/w", silence: float = 5.0) -> AsyncIterator[bytes]:
    async with aclosing(connection.lines(path, silence=silence)) as lines:
        async for line in lines:
            yield line


@pytest.mark.parametrize(
    ("retry_after", "date", "waits"),
    [
        ("Tue, 24 Nov 2026 12:00:09 GMT", "Tue, 24 Nov 2026 12:00:02 GMT", 7.0),
        # It has passed already.
        ("Tue, 24 Nov 2026 11:59:00 GMT", "Tue, 24 Nov 2026 12:00:02 GMT", 0.0),
        # Nothing asks for a day.
        ("Wed, 25 Nov 2026 12:00:02 GMT", "Tue, 24 Nov 2026 12:00:02 GMT", 30.0),
        # Of another clock than ours, and that does not say what time it is.
        ("Tue, 24 Nov 2026 12:00:09 GMT", None, None),
        ("Tue, 24 Nov 2026 12:00:09 GMT", "yesterday", None),
        ("soon", "Tue, 24 Nov 2026 12:00:02 GMT", None),
    ],
)
def test_a_moment_to_come_again_is_one_of_the_clock_that_is_told_beside_it(
    retry_after: str, date: str | None, waits: float | None
) -> None:
    assert getattr(refusal(429, b"busy", retry_after, date), "retry_after", 0) == waits


async def test_sends_what_it_is_given_and_answers_the_body() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        headers = request.headers
        seen.append((request.method, request.raw_path, headers.get("Content-Type"), headers["Authorization"]))
        return web.Response(status=201, body=b"<" + await request.read() + b">")

    async with connected(handler, "secret") as connection:
        assert await connection.request("PATCH", "/a/b%2Fc?x=%25", b"{}", content_type=MERGE_PATCH) == b"<{}>"
        assert await connection.request("GET", "/a", within=3.0) == b"<>"
    assert seen == [
        ("PATCH", "/a/b%2Fc?x=%25", "application/merge-patch+json", "Bearer secret"),
        ("GET", "/a", None, "Bearer secret"),
    ]


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (400, "bad", Refused), (403, "forbidden", Refused), (404, "not found", Gone), (409, "exists", Occupied),
        (409, "... Precondition failed: UID in precondition: a, UID in object meta: b", Gone),
        (422, 'Pod "p" is invalid: metadata.uid: Invalid value: "a": field is immutable', Gone),
        (422, "invalid", Refused), (410, "too old", Expired),
        (302, "over there", Refused), (408, "slow", Unavailable), (429, "wait", Unavailable),
        (500, "no leader", Unavailable), (503, "x", Unavailable),
    ],
)  # fmt: skip
async def test_a_failure_is_an_error_in_the_servers_words(code: int, message: str, error: type[Exception]) -> None:
    async with connected(answering(code, encode(status(code, message)))) as connection:
        with pytest.raises(error) as caught:
            await connection.request("GET", "/a")
        with pytest.raises(error) as in_stream:
            await read(connection, [])
    assert type(caught.value) is type(in_stream.value) is error
    assert str(caught.value) == str(in_stream.value) == message
    if isinstance(caught.value, Refused):
        assert caught.value.status == code


async def test_how_long_to_wait_comes_from_the_header_or_the_status() -> None:
    async with connected(answering(429, b"", Retry_After="7")) as connection:
        with pytest.raises(Unavailable) as caught:
            await connection.request("GET", "/a")
    assert caught.value.retry_after == 7.0
    body = encode(status(429, "wait", details={"retryAfterSeconds": 3}))
    assert getattr(refusal(429, body, "Fri, 31 Dec 1999 23:59:59 GMT"), "retry_after", None) == 3.0
    assert getattr(refusal(500, encode(status(500, "x", details={}))), "retry_after", 0) is None


def test_a_namespace_that_ends_is_told_from_other_refusals() -> None:
    causes = [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated"}]
    assert type(refusal(403, encode(status(403, "forbidden", details={"causes": causes})))) is Terminating
    assert type(refusal(403, encode(status(403, "forbidden", details={"causes": [{}]})))) is Refused
    assert type(refusal(403, encode(status(403, "forbidden")))) is Refused


@pytest.mark.parametrize(("asked", "waits"), [("86400", 30.0), ("9" * 400, 30.0), ("0", 0.0), ("-5", None)])
def test_nobody_waits_longer_than_half_a_minute_whatever_the_api_server_asks_for(
    asked: str, waits: float | None
) -> None:
    assert getattr(refusal(503, b"busy", asked), "retry_after", 0) == waits


@pytest.mark.parametrize(("asked", "waits"), [(86400, 30.0), (-5, 0.0)])
def test_nor_what_it_says_in_the_body(asked: int, waits: float) -> None:
    body = encode(status(503, "busy", details={"retryAfterSeconds": asked}))
    assert getattr(refusal(503, body), "retry_after", None) == waits


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        (b"", "HTTP status 502"),
        (b"\xff", "\ufffd"),
        (b"7", "7"),
    ],
)
async def test_an_answer_that_is_no_status_is_quoted(body: bytes, message: str) -> None:
    assert str(refusal(502, body)) == message


async def read(connection: Connection, into: list[bytes], silence: float = 5.0) -> None:
    async for line in lines_of(connection, silence=silence):
        into.append(line)


async def test_nobody_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        credentials = await Credentials.load(loader(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        async with Connection(credentials) as connection:
            with pytest.raises(Unavailable, match=r"POST /a: .*onnect"):
                await connection.request("POST", "/a?secret=1", b"{}")
            with pytest.raises(Unavailable, match=r"GET /w: .*onnect"):
                await read(connection, [])


async def test_too_late_an_answer_is_unavailable() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(handler) as connection:
        with pytest.raises(Unavailable, match="GET /a: "):
            await connection.request("GET", "/a", within=0.02)


async def test_a_connection_cut_in_the_answer_is_unavailable() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with connected(handler) as connection:
        with pytest.raises(Unavailable):
            await connection.request("POST", "/a", b"{}")


async def test_many_requests_at_once_each_have_a_connection() -> None:
    inside, full = 0, asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        nonlocal inside
        inside += 1
        if inside == 300:
            full.set()
        await full.wait()
        return web.Response()

    async with connected(handler) as connection:
        await asyncio.gather(*(connection.request("POST", f"/{number}", b"{}") for number in range(300)))


async def test_connections_are_opened_beforehand_and_kept() -> None:
    ports: set[int] = set()
    rounds: list[float] = []
    inside, together = 0, asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        nonlocal inside
        ports.add(request.transport.get_extra_info("peername")[1] if request.transport else 0)
        inside += 1
        if inside == 8:
            together.set()
        await together.wait()
        return web.Response(status=503 if inside == 8 else 200)

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise ZeroDivisionError

    async with connected(handler) as connection:
        with pytest.raises(ZeroDivisionError):
            await connection.keep_warm(8, sleep)
    assert len(ports) == 8
    assert rounds == [45.0] * 3


async def test_a_defect_while_warming_is_not_hidden() -> None:
    async with connected(answering(200, b"")) as connection:
        await connection.close()
        with pytest.raises(RuntimeError, match="closed"):
            await connection.keep_warm(1)


def streaming(*chunks: bytes, cut: bool = False, hang: asyncio.Event | None = None) -> Any:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hang is not None:
            await hang.wait()
        if cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return handler


async def test_lines_come_whole_whatever_the_chunks() -> None:
    huge = b"x" * 3_000_000
    async with connected(streaming(b"on", b"e\ntwo\n\nthr", b"ee\n", huge, b"\nhalf a li")) as connection:
        got = [line async for line in lines_of(connection)]
    assert got == [b"one", b"two", b"three", huge]


async def test_a_stream_that_is_cut_is_unavailable_after_its_whole_lines() -> None:
    got: list[bytes] = []
    async with connected(streaming(b"one\ntw", cut=True)) as connection:
        with pytest.raises(Unavailable):
            await read(connection, got)
    assert got == [b"one"]


async def test_a_stream_that_falls_silent_is_given_up() -> None:
    hang = asyncio.Event()
    got: list[bytes] = []
    async with connected(streaming(b"one\n", hang=hang)) as connection:
        with pytest.raises(Silent, match=r"no data for 0\.02 s"):
            await read(connection, got, silence=0.02)
        hang.set()
    assert got == [b"one"]


async def test_tls_is_verified_and_a_client_certificate_shown(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "client.pem").write_bytes(
        authority.issue_cert("escher@example.org").private_key_and_cert_chain_pem.bytes()
    )
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost")

    def trusting(roots: trustme.CA, verify: bool = True) -> Any:
        async def load(configuration: Any) -> Sources:
            configuration.host = where
            configuration.ca_cert_data = roots.cert_pem.bytes().decode()
            configuration.cert_file = configuration.key_file = str(tmp_path / "client.pem")
            configuration.verify_ssl = verify
            return Sources()

        return load

    async with serving(answering(200, b"ok"), trust=server) as where:
        for loads in (trusting(authority), trusting(stranger, verify=False)):
            async with Connection(await Credentials.load(loads)) as connection:
                assert await connection.request("GET", "/a") == b"ok"
        async with Connection(await Credentials.load(trusting(stranger))) as connection:
            with pytest.raises(Unavailable, match="certificate"):
                await connection.request("GET", "/a")


def test_addresses_quote_every_segment() -> None:
    assert address("a", "b/c", "d?", query={"x": "1 &", "empty": "", "n": 2}) == "/a/b%2Fc/d%3F?x=1+%26&n=2"
    assert address("a") == "/a"


async def test_a_reflector_follows_a_server_that_misbehaves() -> None:
    """Paging, 429, a stream cut inside a line, 410 as a status, a bookmark, and an object of a megabyte."""
    big = node("big", 12)
    big["metadata"]["annotations"] = {"blob": "x" * 1_000_000}
    script = iter(
        [
            answering(429, encode(status(429, "wait")), Retry_After="1"),
            answering(200, page([node("n1")], 10, "more")),
            answering(200, page([node("n2")], 10)),
            streaming(event("ADDED", node("n3", 11)) + b"\n" + event("ADDED", big)[:500], cut=True),
            streaming(event("ADDED", big) + b"\n", bookmark(99) + b"\n"),
            answering(410, encode(status(410, "Expired: too old resource version"))),
            answering(200, page([node("n9")], 200)),
        ]
    )
    asked: list[str] = []
    done = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.get("resourceVersion", request.query.get("continue", "list")))
        following = next(script, None)
        if following is None:
            done.set()
            return await streaming(hang=asyncio.Event())(request)  # type: ignore[no-any-return]
        return await following(request)  # type: ignore[no-any-return]

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    sink: RecordingSink[Node] = RecordingSink()
    async with connected(handler) as connection:
        following = asyncio.create_task(
            Reflector(connection, kinds.nodes(), sink, sleep=sleep, chance=lambda: 0.0).run()
        )
        await done.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert asked == ["list", "list", "more", "10", "11", "99", "list", "200"]
    assert sink.log == ["replace n1,n2", "upsert n3", "upsert big", "replace n9"]
    assert slept == [1.0, 0.1]
