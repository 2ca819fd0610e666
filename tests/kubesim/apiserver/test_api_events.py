"""Events: the same ones under core v1 and events.k8s.io/v1."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.kinds import Json
from tests.kubesim.apiserver.apis import MERGE, Api

pytestmark = pytest.mark.anyio

CORE = "/api/v1/namespaces/default/events"
NEWER = "/apis/events.k8s.io/v1/namespaces/default/events"


def event(name: str = "e", **more: Any) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "escher",
        "reportingInstance": "escher-0",
        "type": "Normal",
        "reason": "Waits",
        "action": "Scheduling",
        "note": "for three more",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
        **more,
    }


async def test_an_event_has_two_spellings() -> None:
    api = Api()
    made = api.ok("POST", NEWER, event())
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", "for three more")
    core = api.get(f"{CORE}/e")
    assert (core["apiVersion"], core["message"], core["reportingComponent"]) == ("v1", "for three more", "escher")
    assert core["involvedObject"]["name"] == "p"
    assert core["metadata"] == made["metadata"]
    assert api.names(f"{NEWER}?fieldSelector=regarding.name%3Dp") == ["e"]
    assert api.names(f"{CORE}?fieldSelector=involvedObject.uid%3Du,reason%3DWaits") == ["e"]


async def test_an_event_is_stored_once() -> None:
    api = Api()
    api.ok("POST", NEWER, event())
    assert api.refused("POST", NEWER, event())[:2] == (409, "AlreadyExists")


async def test_both_spellings_are_watched() -> None:
    api = Api()
    watches = [api.watch(f"{path}?timeoutSeconds=5") for path in (CORE, NEWER)]
    api.ok("POST", NEWER, event())
    api.ok("PATCH", f"{CORE}/e", {"count": 2}, media=MERGE)
    core, newer = [[line async for line in watch.lines()] for watch in watches]
    assert len(core) == len(newer) == 2
    assert b'"message":"for three more"' in core[0]
    assert b'"note":"for three more"' in newer[0]
    assert b'"deprecatedCount":2' in newer[1]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"note": "x" * 1025}, 'message: Invalid value: "": can have at most 1024 characters'),
        ({"type": "Odd"}, 'type: Invalid value: "": has invalid value: Odd'),
        ({"eventTime": None}, "eventTime: Required value"),
        ({"action": ""}, "action: Required value"),
        ({"reason": "x" * 129}, 'reason: Invalid value: "": can have at most 128 characters'),
        ({"reportingController": ""}, "reportingController: Required value"),
    ],
)
async def test_a_newer_event_follows_rules(more: dict[str, Any], problem: str) -> None:
    status, _, message = Api().refused("POST", NEWER, event(**more))
    assert status == 422
    assert problem in message


async def test_an_older_event_needs_little() -> None:
    api = Api()
    old = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default", "name": "p"},
        "reason": "R",
        "message": "m",
    }
    api.ok("POST", CORE, old)
    assert api.get(f"{NEWER}/e")["note"] == "m"
    elsewhere = {**old, "metadata": {"name": "f"}, "involvedObject": {"namespace": "other"}}
    assert "does not match event.namespace" in api.refused("POST", CORE, elsewhere)[2]
