"""All bodies together have so much room: who finds none waits a little, and is then told to come again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extender.adapters.http.problems import Problem
from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.bodies import BodyRoom
from extender.settings.settings import BadSettings, Settings, load_settings
from tests.adapters.http.fakes import NotedVerbs, bind_body, filter_body, service

pytestmark = pytest.mark.anyio

KIB = 2**10
FILTER = json.dumps(filter_body()).encode()


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


class Call:
    """A call of a verb whose body comes in pieces; it is answered when the last has come."""

    def __init__(self, app: Service, length: int | None, verb: str = "filter") -> None:
        self._pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.told = b""
        headers = [] if length is None else [(b"content-length", b"%d" % length)]
        scope = {"type": "http", "path": f"/scheduler/{verb}", "method": "POST", "headers": headers}
        self.task = asyncio.ensure_future(app(scope, self._pieces.get, self._send))

    def piece(self, body: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": body, "more_body": not last})

    def leave(self) -> None:
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.told += message.get("body", b"")


async def settled() -> None:
    await asyncio.sleep(0.01)


def app_with(room: BodyRoom, **settings: Any) -> Service:
    return service(body_limit=100 * KIB, room=room, **settings)


async def test_large_bodies_wait_for_each_other_in_their_order() -> None:
    room = BodyRoom(100 * KIB)
    app = app_with(room)
    calls = [Call(app, 60 * KIB) for _ in range(3)]
    for call in calls:
        call.piece(FILTER)
    await settled()
    assert room.taken == 60 * KIB
    for position, call in enumerate(calls):
        call.piece(b" " * (60 * KIB - len(FILTER)), last=True)
        await settled()
        assert [each.status for each in calls] == [200] * (position + 1) + [None] * (2 - position)
    assert room.taken == 0


async def test_who_finds_no_room_in_time_is_told_to_come_again() -> None:
    room = BodyRoom(100 * KIB, longest_wait=5)
    app = app_with(room)
    stalled, late = Call(app, 60 * KIB), Call(app, 50 * KIB)
    stalled.piece(FILTER)
    late.piece(FILTER)
    await asyncio.sleep(4.9)
    assert late.status is None
    await asyncio.sleep(0.2)
    assert late.status == 503
    assert late.headers[b"retry-after"] == b"1"
    told = json.loads(late.told)
    assert told["title"] == "The service is overloaded"
    assert "a body of 51200 bytes exceeds the free body memory: other calls use 61440 bytes of" in told["detail"]
    assert room.taken == 60 * KIB
    stalled.leave()
    await settled()
    assert room.taken == 0
    assert stalled.status is None


async def test_what_comes_at_once_needs_no_room() -> None:
    room = BodyRoom(1)
    call = Call(app_with(room), len(FILTER))
    call.piece(FILTER, last=True)
    await settled()
    assert call.status == 200


async def test_who_gives_up_waiting_stands_in_nobodys_way() -> None:
    room = BodyRoom(100)
    await room.take(80)
    first, second = asyncio.ensure_future(room.take(50)), asyncio.ensure_future(room.take(20))
    await settled()
    assert not second.done()
    first.cancel()
    await settled()
    assert second.done()
    assert room.taken == 100


async def test_who_gives_up_in_the_moment_of_its_turn_gives_it_back() -> None:
    room = BodyRoom(100)
    await room.take(100)
    first = asyncio.ensure_future(room.take(100))
    await settled()
    room.give_back(100)
    first.cancel()
    await settled()
    assert first.cancelled()
    assert room.taken == 0
    await room.take(100)


async def test_one_who_gave_up_in_the_same_moment_is_passed_over() -> None:
    room = BodyRoom(100)
    await room.take(100)
    first, second = asyncio.ensure_future(room.take(60)), asyncio.ensure_future(room.take(70))
    await settled()
    first.cancel()
    room.give_back(100)
    await settled()
    assert second.done()
    assert room.taken == 70


async def test_a_body_of_unknown_length_takes_room_as_it_grows_and_gives_it_back() -> None:
    room = BodyRoom(100 * KIB)
    app = app_with(room)
    small, growing = Call(app, None), Call(app, None)
    for call in (small, growing):
        call.piece(FILTER)
    for _ in range(20):
        growing.piece(b" " * 2 * KIB)
    await settled()
    assert 40 * KIB <= room.taken < 100 * KIB
    small.piece(b"", last=True)
    growing.piece(b" " * 200 * KIB)
    await settled()
    assert (small.status, growing.status) == (200, 413)
    assert room.taken == 0


async def test_bodies_that_are_in_each_others_way_end_in_time_and_leave_room() -> None:
    room = BodyRoom(100 * KIB, longest_wait=5)
    app = app_with(room)
    calls = [Call(app, None) for _ in range(4)]
    for _ in range(60):
        for call in calls:
            call.piece(b" " * KIB)
        await settled()
    for call in calls:
        call.piece(FILTER, last=True)
    await asyncio.sleep(30)
    statuses = sorted(call.status or 0 for call in calls)
    assert set(statuses) == {200, 503}
    assert room.taken == 0


@pytest.mark.parametrize("end", ["refused", "left", "defect"])
async def test_room_is_given_back_however_a_call_ends(end: str) -> None:
    room, verbs = BodyRoom(200 * KIB), NotedVerbs()
    call = Call(app_with(room, verbs=verbs), 50 * KIB)
    call.piece(b"not JSON" if end == "refused" else FILTER)
    await settled()
    assert room.taken == 50 * KIB
    if end == "left":
        call.leave()
    else:
        verbs.fail = RuntimeError("a defect") if end == "defect" else None
        begun = b"not JSON" if end == "refused" else FILTER
        call.piece(b" " * (50 * KIB - len(begun)), last=True)
    await settled()
    assert call.status == {"refused": 400, "left": None, "defect": 200}[end]
    assert room.taken == 0


async def test_a_bind_cannot_wait_with_a_large_body() -> None:
    call = Call(service(), 5 * 2**20, "bind")
    await settled()
    assert call.status == 413
    body = json.dumps(bind_body()).encode()
    call = Call(service(), len(body), "bind")
    call.piece(body, last=True)
    await settled()
    assert call.status == 200


async def test_the_room_that_a_caller_lacks_is_named() -> None:
    room = BodyRoom(10, longest_wait=1)
    with pytest.raises(Problem, match="setting max_inflight_body_bytes"):
        await room.take(11)


def test_room_for_less_than_the_largest_body_is_refused_with_both_numbers() -> None:
    with pytest.raises(BadSettings, match=r"max_inflight_body_bytes = 1048576.*max_body_bytes = 2097152"):
        load_settings(None, max_inflight_body_bytes=2**20, max_body_bytes=2**21)
    assert load_settings(None, max_inflight_body_bytes=2**21, max_body_bytes=2**21).max_inflight_body_bytes == 2**21
    assert Settings.model_validate({}).max_inflight_body_bytes is None
