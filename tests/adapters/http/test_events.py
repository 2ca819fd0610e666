"""Decisions as server-sent events: as they happen, from a number on, with what was missed, until the service ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from extender.adapters.http.models.answers import event_view
from extender.adapters.http.routes import events
from extender.adapters.http.server.asgi import Service
from extender.app.contracts.ports import PodRef
from extender.app.observability.decision_events import BindEnded
from extender.core.gangs.state.gang import GangBound, GangPlanned
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.adapters.http.fakes import NotedManagement, service

pytestmark = pytest.mark.anyio

TRAIN = GangKey("team-a", "train")


class Stream:
    """A caller of the ASGI app who reads what comes as it comes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._text = ""
        self._came = asyncio.Event()
        self.left = asyncio.Event()
        self._asked = False
        self.ended = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            self._text += message["body"].decode()
            if not message.get("more_body", False):
                self.ended.set()
        self._came.set()

    async def block(self) -> str:
        """The next block, which an empty line ends."""
        while "\n\n" not in self._text:
            self._came.clear()
            await self._came.wait()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def event(self) -> tuple[str, dict[str, Any]]:
        """The next event's kind and data."""
        while (block := await self.block()).startswith(":"):
            pass
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        return lines["event"], json.loads(lines["data"])

    async def whole(self) -> str:
        """All that comes, once it has ended."""
        await self.ended.wait()
        return self._text


@asynccontextmanager
async def following(
    told: NotedManagement | Service,
    query: str = "",
    client: tuple[str, int] = ("127.0.0.1", 1),
    expected: int = 200,
    **headers: str,
) -> AsyncIterator[Stream]:
    """The stream, once it has begun; or what refuses it with the status that is expected."""
    app = told if isinstance(told, Service) else service(management=told)
    stream = Stream()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": "/v1/events",
        "raw_path": b"/v1/events", "query_string": query.encode(), "root_path": "", "scheme": "http",
        "headers": [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()],
        "client": client, "server": ("127.0.0.1", 2),
    }  # fmt: skip
    calling = asyncio.create_task(app(scope, stream.receive, stream.send))
    try:
        if expected == 200:
            assert await stream.block() == ": following"
        else:
            await stream.ended.wait()
        assert stream.status == expected
        yield stream
    finally:
        stream.left.set()
        await asyncio.wait_for(calling, 5)


async def test_what_is_decided_comes_as_it_happens(management: NotedManagement) -> None:
    async with following(management) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        management.announcements.emit(GangPlanned(TRAIN))
        assert await stream.event() == (
            "GangPlanned",
            {
                "number": 1, "time": "1970-01-01T00:00:00Z", "what": "GangPlanned", "namespace": "team-a",
                "gang": "train", "pod": "", "node": "", "detail": "",
            },
        )  # fmt: skip
        management.announcements.emit(BindEnded(PodRef("team-a", "p", PodUid("u")), NodeName("n1"), "it is gone"))
        what, said = await stream.event()
        assert (what, said["pod"], said["node"], said["detail"]) == ("PodNotBound", "p", "n1", "it is gone")


async def test_what_tenants_write_ends_no_event_and_is_no_command(management: NotedManagement) -> None:
    hostile = "\x1b[2J\r\n\ndata: FORGED \u202e\u2028\x7f\x9b\U000e0001"
    async with following(management) as stream:
        management.announcements.emit(BindEnded(PodRef("team-a", "p", PodUid("u")), NodeName("n1"), hostile))
        block = await stream.block()
        assert block.replace("\n", "").isprintable()
        assert block.isascii()
        [data] = [line for line in block.split("\n") if line.startswith("data: ")]
        assert json.loads(data.removeprefix("data: "))["detail"] == hostile


async def test_whoever_comes_back_hears_what_came_meanwhile(management: NotedManagement) -> None:
    for _ in range(3):
        management.announcements.emit(GangPlanned(TRAIN))
    async with following(management, last_event_id="1") as stream:
        assert [(await stream.event())[1]["number"] for _ in range(2)] == [2, 3]


async def test_what_was_forgotten_is_counted(management: NotedManagement) -> None:
    management.announcements.remember(2)
    for _ in range(5):
        management.announcements.emit(GangPlanned(TRAIN))
    async with following(management, last_event_id="1") as stream:
        assert await stream.event() == ("Missed", {"count": 2, "before": 4})
        assert [(await stream.event())[1]["number"] for _ in range(2)] == [4, 5]


async def test_who_falls_behind_is_dropped_and_begins_again_with_what_is_remembered(
    management: NotedManagement,
) -> None:
    management.announcements.remember(2)
    async with following(management) as stream:
        # It has begun to wait.
        management.announcements.emit(GangPlanned(TRAIN))
        assert (await stream.event())[1]["number"] == 1
        for _ in range(5):
            management.announcements.emit(GangPlanned(TRAIN))
        assert (await stream.whole()).startswith("id: 4\nevent: Missed\n")
        assert await stream.event() == ("Missed", {"count": 3, "before": 5})
    async with following(management, last_event_id="4") as stream:
        assert [(await stream.event())[1]["number"] for _ in range(2)] == [5, 6]


async def test_an_event_is_written_once_for_all_who_follow(
    management: NotedManagement, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def noted(event: Any) -> Any:
        written.append(event.number)
        return event_view(event)

    monkeypatch.setattr(events, "event_view", noted)
    app = service(management=management)
    async with AsyncExitStack() as held:
        streams = [await held.enter_async_context(following(app, query)) for query in ("", "namespace=team-w") * 10]
        management.announcements.emit(GangPlanned(GangKey("team-w", "written-once")))
        assert {(await stream.event())[1]["gang"] for stream in streams} == {"written-once"}
    assert written == [1]


async def test_a_number_of_an_earlier_life_begins_with_the_first_of_this(management: NotedManagement) -> None:
    management.announcements.emit(GangPlanned(TRAIN))
    async with following(management, last_event_id="900") as stream:
        assert (await stream.event())[1]["number"] == 1


async def test_of_one_namespace_alone(management: NotedManagement) -> None:
    async with following(management, "namespace=team-b") as stream:
        management.announcements.emit(GangPlanned(TRAIN))
        management.announcements.emit(GangBound(GangKey("team-b", "other"), 0.25))
        what, said = await stream.event()
        assert (what, said["gang"], said["number"]) == ("GangBound", "other", 2)


async def test_it_ends_with_the_service(management: NotedManagement) -> None:
    async with following(management) as stream:
        management.announcements.emit(GangPlanned(TRAIN))
        management.announcements.close()
        assert (await stream.event())[0] == "GangPlanned"
        await asyncio.wait_for(stream.ended.wait(), 5)


@pytest.mark.parametrize(
    ("query", "headers", "field"),
    [({}, {"Last-Event-ID": "x1"}, "Last-Event-ID"), ({"namespace": "Team A"}, {}, "namespace")],
)
async def test_what_makes_no_sense_is_refused(
    client: httpx.AsyncClient, query: dict[str, str], headers: dict[str, str], field: str
) -> None:
    answer = await client.get("/v1/events", params=query, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
