"""What the embedded cluster remembers is bounded: in number, in minutes and in bytes."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from kubesim.apiserver.machinery.history import Compacted
from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import CONFIG_MAP, EVENTS, POD, Json
from lab.simulation import Simulation
from tests.kubesim.apiserver.apis import PODS, Api, pod

pytestmark = pytest.mark.anyio

MAPS = CONFIG_MAP.path("default")


def config_map(name: str, text: str = "") -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "data": {"text": text}}


def expired(api: Api, path: str) -> bool:
    """Whether a watch from that version on is told that it comes too late."""
    watch = api.watch(path)
    line: Json = json.loads(watch._waiting[0]) if watch._waiting else {"type": "none"}
    watch.close()
    return bool(line["type"] == "ERROR" and line["object"]["code"] == 410)


async def test_what_has_happened_can_be_asked_for_five_minutes_long() -> None:
    api = Api()
    version = api.ok("POST", MAPS, config_map("a"))["metadata"]["resourceVersion"]
    api.ok("POST", MAPS, config_map("b"))
    await asyncio.sleep(299)
    assert not expired(api, f"{MAPS}?resourceVersion={version}")
    await asyncio.sleep(2)
    assert expired(api, f"{MAPS}?resourceVersion={version}")
    exact = f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
    assert api.refused("GET", exact)[:2] == (410, "Expired")
    assert api.names(MAPS) == ["a", "b"]


async def test_a_watch_that_is_up_to_date_goes_on_after_any_silence() -> None:
    api = Api()
    version = api.ok("POST", MAPS, config_map("a"))["metadata"]["resourceVersion"]
    await asyncio.sleep(86_400)
    assert not expired(api, f"{MAPS}?resourceVersion={version}")


def test_no_more_bytes_are_remembered_than_allowed() -> None:
    store = Store(most_bytes=1_000_000)
    store.create(POD, {"metadata": {"name": "p", "namespace": "default"}})
    first = store.version
    for number in range(200):
        store.create(CONFIG_MAP, config_map(f"m{number}", "x" * 20_000))
        assert store.remembered_bytes <= 1_250_000
    with pytest.raises(Compacted):
        store.changes_since(CONFIG_MAP, first)
    # The greedy resource pays, not the others.
    assert len(store.changes_since(POD, 1)) == 1
    assert [change.version for change in store.changes_since(CONFIG_MAP, store.version - 1)] == [store.version]


async def test_a_reader_that_lets_large_lines_wait_is_cut() -> None:
    api = Api()
    watch = api.watch(f"{MAPS}?resourceVersion={api.store.version}")
    for number in range(60):
        api.ok("POST", MAPS, config_map(f"m{number}", "x" * 2_000_000))
    assert api.server.open_watches == 0
    assert sum(map(len, watch._waiting)) < 70_000_000


async def test_an_event_is_gone_an_hour_after_it_was_written_last() -> None:
    async with Simulation() as simulation:
        event = {"reason": "Told", "action": "Telling", "type": "Normal", "reportingController": "a/b"}
        event |= {"reportingInstance": "me", "eventTime": "2026-01-01T00:00:00.000000Z"}
        event["regarding"] = {"kind": "Pod", "name": "p", "namespace": "default"}  # type: ignore[assignment]
        heard: list[tuple[str, str]] = []
        api = simulation.cluster.api
        api.store.subscribe(lambda change: heard.append((change.type, change.key)))
        audited: list[Json] = []
        api.audit.subscribe(audited.append)
        for name in ("once", "again"):
            await simulation.create({"metadata": {"name": name, "namespace": "default"}, **event}, EVENTS)
        await asyncio.sleep(3000)
        path = EVENTS.path("default", "again")
        series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:50:00.000000Z"}}
        await simulation.ask("PATCH", path, series, content_type="application/merge-patch+json")
        before = len(audited)
        await asyncio.sleep(595)
        assert ("DELETED", "default/once") not in heard
        await asyncio.sleep(10)
        assert ("DELETED", "default/once") in heard
        assert ("DELETED", "default/again") not in heard
        await asyncio.sleep(3000)
        assert ("DELETED", "default/again") in heard
        assert api.store.list(EVENTS) == []
        assert not [each for each in audited[before:] if each.get("verb") == "delete"]


async def test_paths_that_somebody_makes_up_make_no_new_counters() -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    for number in range(50):
        api.ask("GET", f"{PODS}/p/made-up-{number}")
    _, told = api.ask("GET", "/metrics")
    assert "made-up" not in told
    assert told.count("\n") < 20


async def test_events_of_any_moment_end() -> None:
    rng = random.Random(3)
    async with Simulation() as simulation:
        store = simulation.cluster.api.store
        for number in range(300):
            name = f"e{number}"
            store.create(EVENTS, {"metadata": {"name": name, "namespace": "default"}, "regarding": {}})
            await asyncio.sleep(rng.random() * 100)
        await asyncio.sleep(3601)
        assert store.list(EVENTS) == []
