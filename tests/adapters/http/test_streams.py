"""Streams of events are bounded: by client, by namespace and in all; and one that has ended makes place for another."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from extender.adapters.http.call_admission import Entry, entry_of
from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.connections import Bounds
from extender.adapters.http.server.streams import Streams
from extender.core.gangs.state.gang import GangPlanned
from extender.core.names import GangKey
from extender.settings.settings import Settings
from tests.adapters.http.connected import Site
from tests.adapters.http.fakes import NotedManagement, in_process, service
from tests.adapters.http.known import APP_A, Known, bearer, guarded
from tests.adapters.http.test_events import following

pytestmark = pytest.mark.anyio

FOLLOW = b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"
ELSEWHERE = ("192.0.2.7", 1)


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


def bounded(management: NotedManagement | None = None, **bounds: int) -> Service:
    return service(management=management, entry=Entry(streams=Streams(**bounds)))


async def refused(app: Service, **headers: str) -> Any:
    async with in_process(app) as client:
        answer = await client.get("/v1/events?namespace=team-a", headers=headers)
    assert answer.status_code == 429
    assert (answer.headers["Retry-After"], answer.headers["Connection"]) == ("10", "close")
    return answer.json()["detail"]


async def test_one_user_holds_so_many_open_and_others_are_served() -> None:
    known = Known()
    known.give(APP_A, "team-a", "decisions", ["watch"])
    app = guarded(known, streams=Streams(per_client=3))
    async with AsyncExitStack() as held:
        for _ in range(3):
            await held.enter_async_context(following(app, "namespace=team-a", authorization="Bearer a-token"))
        assert await refused(app, Authorization="Bearer a-token") == (
            f"3 event streams of user {APP_A!r} are open, which is the limit (setting streams_per_client): close one "
            "that is not needed, or retry later"
        )
        async with following(app, "namespace=team-a", authorization="Bearer admin-token") as stream:
            assert stream.status == 200
    async with following(app, "namespace=team-a", authorization="Bearer a-token") as stream:
        assert stream.status == 200, "those that have ended make place"


async def test_without_tokens_addresses_count_and_on_this_machine_nobody_can_be_told_from_anybody() -> None:
    app = bounded(per_client=1)
    async with (
        following(app, client=ELSEWHERE),
        following(app, client=("192.0.2.8", 1)),
        following(app),
        following(app),
        following(app, client=ELSEWHERE, expected=429) as stream,
    ):
        assert "of address '192.0.2.7'" in await stream.whole()


async def test_one_namespace_is_followed_by_so_many_and_others_are_too() -> None:
    app = bounded(per_namespace=2)
    async with AsyncExitStack() as held:
        for query in ("namespace=team-a", "namespace=team-a", "", "", "namespace=team-b"):
            await held.enter_async_context(following(app, query))
        assert (await refused(app)).startswith(
            "2 event streams follow namespace 'team-a', which is the limit (setting "
        )
        async with following(app, expected=429) as stream:
            assert "2 event streams follow all namespaces" in await stream.whole()


async def test_those_that_are_open_and_those_that_were_refused_are_counted() -> None:
    registry = CollectorRegistry()
    app = service(entry=Entry(streams=Streams(limit=1)), registry=registry)
    async with following(app, "namespace=team-a"):
        await refused(app)
        assert registry.get_sample_value("escher_event_streams") == 1
    assert registry.get_sample_value("escher_event_streams") == 0
    found = {
        name: registry.get_sample_value("escher_event_streams_refused_total", {"setting": name})
        for name in ("streams_per_client", "streams_per_namespace", "streams_limit")
    }
    assert found == {"streams_per_client": 0, "streams_per_namespace": 0, "streams_limit": 1}


async def test_in_all_there_are_so_many() -> None:
    app = bounded(limit=2)
    async with following(app, "namespace=team-b"), following(app):
        assert "2 event streams are open, which is the limit (setting streams_limit)" in await refused(app)


async def test_what_is_refused_is_followed_by_nobody_and_counts_for_nothing() -> None:
    management, streams = NotedManagement(), Streams(limit=1)
    app = service(management=management, entry=Entry(streams=streams))
    async with following(app, "namespace=team-b"):
        before = dict(streams.open)
        for _ in range(5):
            await refused(app)
        assert dict(streams.open) == before
    assert not streams.open


async def test_a_stream_that_the_service_ends_makes_place() -> None:
    management, streams = NotedManagement(), Streams()
    app = service(management=management, entry=Entry(streams=streams))
    async with following(app, client=ELSEWHERE) as stream:
        assert sum(streams.open.values()) == 3
        management.announcements.emit(GangPlanned(GangKey("team-a", "train")))
        management.announcements.close()
        await stream.ended.wait()
    assert not streams.open


async def test_whoever_may_not_watch_is_told_so_and_not_how_many_do() -> None:
    known = Known()
    app = guarded(known, streams=Streams(limit=1))
    async with following(app, authorization="Bearer admin-token"), in_process(app) as client:
        answer = await client.get("/v1/events", headers=bearer("a-token"))
    assert answer.status_code == 403


async def test_the_bounds_are_settings() -> None:
    given = {"streams_per_client": 1, "streams_per_namespace": 2, "streams_limit": 3}
    streams = entry_of(Settings.model_validate(given)).streams
    held: list[tuple[str, str]] = []
    with_all = AsyncExitStack()
    async with with_all:
        for client, namespace in (("a", "x"), ("a", "y"), ("b", "x"), ("c", "x"), ("c", "y"), ("d", "z")):
            try:
                with_all.enter_context(streams.held(("user", client), namespace))
            except Exception as problem:
                held.append((client, str(problem).partition("setting ")[2].partition(")")[0]))
    assert held == [("a", "streams_per_client"), ("c", "streams_per_namespace"), ("d", "streams_limit")]


async def test_a_caller_that_leaves_makes_place_and_so_does_one_that_reads_nothing_for_a_minute() -> None:
    streams = Streams()
    site = Site(Bounds(unread_seconds=60), service(entry=Entry(streams=streams)))
    leaves, deaf, reads = site.line(), site.line(room=10), site.line()
    for line in (leaves, deaf, reads):
        line.send(FOLLOW)
    await asyncio.sleep(1)
    assert streams.open["all"] == 3
    leaves.abort()
    await asyncio.sleep(1)
    assert streams.open["all"] == 2
    await asyncio.sleep(60)
    assert deaf.closed_at is not None
    assert (reads.closed_at, streams.open["all"]) == (None, 1)


async def test_a_caller_that_reads_too_slowly_is_told_what_it_has_missed_and_makes_place() -> None:
    streams, management = Streams(), NotedManagement()
    management.announcements.remember(10)
    site = Site(Bounds(unread_seconds=60), service(management=management, entry=Entry(streams=streams)))
    slow, reads = site.line(room=10), site.line()
    for line in (slow, reads):
        line.send(FOLLOW)
    for _ in range(50):
        await asyncio.sleep(0.1)
        management.announcements.emit(GangPlanned(GangKey("team-a", "train")))
    slow.read_all()
    await asyncio.sleep(1)
    assert slow.told.count(b"event: ") == 1
    assert b'id: 40\nevent: Missed\ndata: {"count": 40, "before": 41}\n\n' in slow.told
    assert slow.told.endswith(b"0\r\n\r\n")
    assert (reads.told.count(b"event: GangPlanned"), reads.told.count(b"Missed")) == (50, 0)
    assert streams.open["all"] == 1
