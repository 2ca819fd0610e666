"""Server: the embedded API server on a port, as an ASGI application for uvicorn.

It handles HTTP: bodies, headers, and streams whose client leaves. `api` makes the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

from kubesim.apiserver.machinery.wire import JSON, Answer, Request, Stream
from kubesim.apiserver.serving.api import ApiServer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_LARGEST_BODY = 3 * 1024 * 1024
_TOO_LARGE = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}'
)


def application(server: ApiServer) -> Application:
    """The ASGI application. Watches end when `lifespan` shuts down or their client leaves."""
    open_streams: set[Stream] = set()

    async def handle(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send, open_streams)
        elif scope["type"] == "http":
            await _answer(server, scope, receive, send, open_streams)

    return handle


async def _live(receive: Receive, send: Send, streams: set[Stream]) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            for stream in tuple(streams):
                stream.close()
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _answer(server: ApiServer, scope: Message, receive: Receive, send: Send, streams: set[Stream]) -> None:
    body = await _body(receive)
    if body is None:
        return
    if len(body) > _LARGEST_BODY:
        await _send(send, Answer(413, _TOO_LARGE), head=False)
        return
    answer = server.handle(_request(scope, body))
    if isinstance(answer, Answer):
        await _send(send, answer, head=scope["method"] == "HEAD")
        return
    streams.add(answer)
    try:
        await _stream(answer, receive, send)
    finally:
        answer.close()
        streams.discard(answer)


def _request(scope: Message, body: bytes) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    return Request(scope["method"], scope["path"], query, headers, body)


async def _body(receive: Receive) -> bytes | None:
    """The body of the request; None if the client has left."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size <= _LARGEST_BODY + len(part):
            parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(send: Send, answer: Answer, *, head: bool) -> None:
    headers = {"cache-control": "no-cache, private", **answer.headers, "content-length": str(len(answer.body))}
    await _start(send, answer.status, headers)
    await send({"type": "http.response.body", "body": b"" if head else answer.body})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _stream(stream: Stream, receive: Receive, send: Send) -> None:
    """Sends all chunks until the stream ends or the client leaves."""
    await _start(send, 200, {"cache-control": "no-cache, private", "content-type": JSON})
    # The headers go out at once, because the first event may come minutes later.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    leaving = asyncio.ensure_future(_left(receive))
    leaving.add_done_callback(lambda _: stream.close())
    try:
        async with aclosing(stream.chunks()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if leaving.done():
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not leaving.done():
            await send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
