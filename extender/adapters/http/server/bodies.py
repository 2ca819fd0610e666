"""Bodies: reads a request's whole body within a limit, and sends whole answers with their length.

All bodies that are read or processed at a time share one `BodyRoom`, in bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from starlette.types import Message, Receive, Scope, Send

from extender.adapters.http.problems import CONTENT_TYPE, Problem, ProblemKind

JSON = b"application/json"
AS_SAID = (b"x-content-type-options", b"nosniff")
"""Browsers must not take a refusal, which may quote a name that a caller chose, for a page."""

LONGEST_WAIT = 5.0
"""Seconds for which a body waits for room: after longer waits the caller should repeat the call."""


class ClientLeft(Exception):
    """The connection closed before the body was complete: no caller waits for an answer."""


def declared_length(scope: Scope) -> int | None:
    """Returns the announced Content-Length; None if there is none that can be read."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else None
    return None


class BodyRoom:
    """Bytes for bodies: at most `size` are taken at the same time. First come, first served."""

    def __init__(self, size: int, longest_wait: float = LONGEST_WAIT) -> None:
        self.size = size
        self.taken = 0
        self._longest_wait = longest_wait
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def take(self, count: int) -> None:
        """Takes `count` bytes until `give_back`. Raises Problem (503) if none are free in time."""
        if not self._waiting and self.taken + count <= self.size:
            self.taken += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = count
        try:
            async with asyncio.timeout(self._longest_wait):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(count)
            else:
                self._waiting.pop(turn, None)
                self._serve()
            if isinstance(error, TimeoutError):
                raise self._busy(count) from None
            raise

    def give_back(self, count: int) -> None:
        """Frees the bytes for other requests."""
        self.taken -= count
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            turn, count = next(iter(self._waiting.items()))
            if not turn.cancelled():
                if self.taken + count > self.size:
                    return
                self.taken += count
                turn.set_result(None)
            del self._waiting[turn]

    def _busy(self, count: int) -> Problem:
        return Problem(
            ProblemKind.BUSY,
            f"a body of {count} bytes exceeds the free body memory: other calls use {self.taken} bytes of "
            f"{self.size} (setting max_inflight_body_bytes)",
            headers={"Retry-After": "1"},
        )


class Share:
    """The bytes that one request has taken. They are given back when the block ends."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._bytes = 0

    async def at_least(self, count: int, limit: int | None = None) -> None:
        """Holds at least `count` bytes; doubles them, up to a `limit`. Raises as `BodyRoom.take`."""
        if count <= self._bytes:
            return
        wanted = count if limit is None else min(max(count, 2 * self._bytes), limit)
        await self._room.take(wanted - self._bytes)
        self._bytes = wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bytes:
            self._room.give_back(self._bytes)
            self._bytes = 0


async def read_body(scope: Scope, receive: Receive, limit: int, share: Share) -> bytes:
    """Returns the whole body. `share` takes room for it, unless it came at once.

    Raises Problem if it exceeds `limit` bytes or its announced length, or finds no room in time; ClientLeft. An
    announced length only serves to refuse and to take room: received bytes are counted as well.
    """
    declared = declared_length(scope)
    if declared is not None and declared > limit:
        raise too_large(f"{declared} bytes", limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        if declared is not None:
            await share.at_least(declared)
        body = await _read_on(receive, body, limit, share)
    elif len(body) > limit:
        raise too_large("more", limit)
    if declared is not None and len(body) != declared:
        raise Problem(ProblemKind.NOT_JSON, f"the body ends after {len(body)} of the {declared} announced bytes")
    return body


async def _read_on(receive: Receive, first: bytes, limit: int, share: Share) -> bytes:
    pieces, length, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        length += len(piece)
        if length > limit:
            # Frees the received bytes at once, not when the caller has been answered.
            pieces.clear()
            raise too_large("more", limit)
        pieces.append(piece)
        await share.at_least(length, limit)
    return b"".join(pieces)


def too_large(found: str, limit: int) -> Problem:
    return Problem(ProblemKind.TOO_LARGE, f"the body has {found}; the limit is {limit} bytes (setting max_body_bytes)")


def replaying(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives the body in one message, then what the connection receives."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


Headers = Sequence[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """A whole answer to a request."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    more: Headers = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """With its Content-Length; names in lower case."""
        return [(b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body)), *self.more]


def told(problem: Problem) -> Answer:
    """Returns the problem as problem details."""
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    return Answer(problem.body(), problem.status, CONTENT_TYPE.encode(), [*headers, AS_SAID])


async def answer(send: Send, answered: Answer) -> None:
    await send({"type": "http.response.start", "status": answered.status, "headers": answered.headers})
    await send({"type": "http.response.body", "body": answered.body})
