"""Watches: what is told, from when on, to whom, and how a stream ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubesim.apiserver.serving.api import Watch
from kubesim.kinds import POD, Json
from tests.kubesim.apiserver.apis import MERGE, PODS, Api, binding, pod

pytestmark = pytest.mark.anyio


async def told(watch: Watch) -> list[Json]:
    """All events until the stream ends."""
    return [json.loads(line) async for line in watch.lines()]


def short(events: list[Json]) -> list[tuple[str, Any]]:
    return [(event["type"], event["object"]["metadata"].get("name")) for event in events]


def version(api: Api) -> str:
    return str(api.get(PODS)["metadata"]["resourceVersion"])


async def test_a_watch_from_a_version_tells_what_followed_it() -> None:
    api = Api()
    api.ok("POST", PODS, pod("a"))
    then = version(api)
    api.ok("POST", PODS, pod("b"))
    watch = api.watch(f"{PODS}?resourceVersion={then}&timeoutSeconds=5")
    api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, media=MERGE)
    api.ok("DELETE", f"{PODS}/b")
    events = await told(watch)
    assert short(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert events[0]["object"]["kind"] == "Pod"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("query", ["", "&resourceVersion=0"])
async def test_a_watch_from_nowhere_begins_with_what_there_is(query: str) -> None:
    api = Api()
    api.ok("POST", PODS, pod("a"))
    watch = api.watch(f"{PODS}?timeoutSeconds=5{query}")
    api.ok("POST", PODS, pod("b"))
    assert short(await told(watch)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_version_that_was_compacted_is_an_event_of_410() -> None:
    api = Api()
    then = version(api)
    api.ok("POST", PODS, pod("a"))
    api.store.compact(api.store.version)
    (event,) = await told(api.watch(f"{PODS}?resourceVersion={int(then) - 1}&timeoutSeconds=5"))
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: ")


async def test_an_object_that_leaves_the_selection_is_gone_and_one_that_enters_is_new() -> None:
    api = Api()
    api.ok("POST", PODS, pod("a", labels={"q": "1"}))
    api.ok("POST", PODS, pod("b"))
    labelled = api.watch(f"{PODS}?labelSelector=q%3D1&resourceVersion={version(api)}&timeoutSeconds=5")
    unbound = api.watch(f"{PODS}?fieldSelector=spec.nodeName%3D&resourceVersion={version(api)}&timeoutSeconds=5")
    api.ok("PATCH", f"{PODS}/b", {"metadata": {"labels": {"q": "1"}}}, media=MERGE)
    api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"q": "2"}}}, media=MERGE)
    api.ok("POST", f"{PODS}/a/binding", binding("a"))
    events = await told(labelled)
    assert short(events) == [("ADDED", "b"), ("DELETED", "a")]
    gone = events[1]["object"]["metadata"]
    assert gone["labels"] == {"q": "1"}
    assert int(gone["resourceVersion"]) > int(events[0]["object"]["metadata"]["resourceVersion"])
    assert short(await told(unbound)) == [("MODIFIED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_namespace_hears_of_itself_alone() -> None:
    api = Api()
    watch = api.watch(f"{PODS}?timeoutSeconds=5")
    api.ok("POST", "/api/v1/namespaces/kube-system/pods", pod("x"))
    api.ok("POST", PODS, pod("y"))
    assert short(await told(watch)) == [("ADDED", "y")]


async def test_bookmarks_come_every_minute_and_before_the_end() -> None:
    api = Api()
    loop = asyncio.get_running_loop()
    began = loop.time()
    at = []
    async for line in api.watch(f"{PODS}?allowWatchBookmarks=true&timeoutSeconds=150").lines():
        event = json.loads(line)
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "Pod"
        assert event["object"]["metadata"]["resourceVersion"] == str(api.store.version)
        at.append(round(loop.time() - began))
    assert at == [60, 120, 148]
    assert round(loop.time() - began) == 150


async def test_a_watch_list_marks_the_end_of_what_there_was() -> None:
    api = Api()
    api.ok("POST", PODS, pod("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5"
    watch = api.watch(f"{PODS}?{query}")
    api.ok("POST", PODS, pod("b"))
    events = await told(watch)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_query_that_makes_no_sense_is_refused() -> None:
    api = Api()
    assert api.refused("GET", f"{PODS}?watch=1&sendInitialEvents=true")[0] == 422
    assert api.refused("GET", f"{PODS}?watch=1&resourceVersionMatch=NotOlderThan")[0] == 422
    assert api.refused("GET", f"{PODS}?watch=1&resourceVersion=abc")[0] == 500
    assert api.refused("GET", f"{PODS}?watch=1&timeoutSeconds=abc")[0] == 400


async def test_a_slow_reader_is_cut() -> None:
    api = Api()
    api.ok("POST", PODS, pod("a"))
    watch = api.watch(f"{PODS}?timeoutSeconds=3600")
    for number in range(10_050):
        change = {"metadata": {"labels": {"n": str(number)}}}
        if number < 10:
            api.ok("PATCH", f"{PODS}/a", change, media=MERGE)
        else:
            stored = api.store.get(POD, "default", "a")
            assert stored is not None
            api.store.replace(POD, {**stored, "metadata": {**stored["metadata"], **change["metadata"]}})
    assert len(await told(watch)) == 10_001


async def test_readers_of_the_same_form_share_the_bytes() -> None:
    api = Api()
    one, other = (api.watch(f"{PODS}?timeoutSeconds=5") for _ in range(2))
    api.ok("POST", PODS, pod("a"))
    lines = [[line async for line in watch.lines()] for watch in (one, other)]
    assert lines[0][0] is lines[1][0]


async def test_a_watch_can_be_of_metadata_or_of_tables() -> None:
    api = Api()
    partial = api.watch(f"{PODS}?timeoutSeconds=5", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    table = api.watch(f"{PODS}?timeoutSeconds=5", "application/json;as=Table;g=meta.k8s.io;v=v1")
    api.ok("POST", PODS, pod("a"))
    api.ok("POST", PODS, pod("b"))
    assert [event["object"]["kind"] for event in await told(partial)] == ["PartialObjectMetadata"] * 2
    first, second = await told(table)
    assert first["object"]["rows"][0]["cells"][0] == "a"
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]


async def test_a_reader_that_leaves_is_forgotten() -> None:
    api = Api()
    watch = api.watch(f"{PODS}?timeoutSeconds=5")
    watch.close()
    api.ok("POST", PODS, pod("a"))
    assert await told(watch) == []
