"""Bodies: a request's body taken in whole, within a limit, and an answer given whole, with its length.

Knows ASGI's messages. Must not know what a body means.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Message, Receive, Scope, Send

from extender.adapters.http.problems import CONTENT_TYPE, Kind, Problem

JSON = b"application/json"


class ClientLeft(Exception):
    """The connection closed before the body was complete: there is nobody to answer."""


def declared_length(scope: Scope) -> int | None:
    """The Content-Length that the caller announced; None if there is none that can be read."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else None
    return None


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises Problem where it exceeds `limit` bytes or its announced length, ClientLeft.

    An announced length is believed only to refuse: what is streamed is counted as well.
    """
    declared = declared_length(scope)
    if declared is not None and declared > limit:
        raise too_large(f"{declared} bytes", limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        body = await _read_on(receive, body, limit)
    elif len(body) > limit:
        raise too_large("more", limit)
    if declared is not None and len(body) != declared:
        raise Problem(Kind.NOT_JSON, f"the body ends after {len(body)} of the {declared} bytes that were announced")
    return body


async def _read_on(receive: Receive, first: bytes, limit: int) -> bytes:
    pieces, length, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        length += len(piece)
        if length > limit:
            # What has arrived is let go at once, not when the caller has been answered.
            pieces.clear()
            raise too_large("more", limit)
        pieces.append(piece)
    return b"".join(pieces)


def too_large(found: str, limit: int) -> Problem:
    return Problem(Kind.TOO_LARGE, f"the body has {found}; the limit is {limit} bytes (setting body_limit)")


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body in one message, and then whatever the connection says."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


Headers = Sequence[tuple[bytes, bytes]]


async def answer(send: Send, body: bytes, status: int = 200, content_type: bytes = JSON, headers: Headers = ()) -> None:
    """The answer is sent, with its Content-Length."""
    sent = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def answer_problem(send: Send, problem: Problem) -> None:
    """The problem is sent as problem details."""
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await answer(send, problem.body(), problem.status, CONTENT_TYPE.encode(), headers)
