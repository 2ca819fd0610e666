"""Audit: who asked for what, and what came of it, as kube-apiserver writes it down."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubesim.apiserver.machinery.wire import Request
from kubesim.apiserver.serving.api import ADMIN, ANYBODY, ApiServer
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.clock import Clock
from kubesim.kinds import Json
from tests.kubesim.apiserver.apis import PODS, Api, pod

pytestmark = pytest.mark.anyio


def audited(api: Api) -> list[Json]:
    events: list[Json] = []
    api.server.audit.subscribe(events.append)
    return events


def in_short(event: Json) -> tuple[Any, ...]:
    about = event["objectRef"]
    what = "/".join(each for each in (about["resource"], about.get("name"), about.get("subresource")) if each)
    return event["verb"], what, event["responseStatus"]["code"]


async def test_what_changes_something_is_told_with_its_outcome_and_reading_is_not() -> None:
    api = Api()
    events = audited(api)
    api.ask("POST", PODS, pod())
    api.ask("GET", f"{PODS}/p")
    api.ask("GET", PODS)
    api.ask("POST", PODS, pod())
    api.ask("DELETE", f"{PODS}/p")
    api.ask("DELETE", f"{PODS}/p")
    assert [in_short(each) for each in events] == [
        ("create", "pods", 201),
        ("create", "pods", 409),
        ("delete", "pods/p", 200),
        ("delete", "pods/p", 404),
    ]
    assert {each["stage"] for each in events} == {"ResponseComplete"}
    assert len({each["auditID"] for each in events}) == 4


async def test_bindings_evictions_deletions_and_events_are_told_with_what_was_sent() -> None:
    api = Api()
    events = audited(api)
    api.ask("POST", PODS, pod())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    api.ask("POST", f"{PODS}/p/binding", binding)
    eviction = {"metadata": {"name": "p", "namespace": "default"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    api.ask("POST", f"{PODS}/p/eviction", eviction)
    api.ask("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1"})
    assert [in_short(each) for each in events[1:]] == [
        ("create", "pods/p/binding", 201),
        ("create", "pods/p/eviction", 201),
        ("deletecollection", "pods", 200),
    ]
    assert "requestObject" not in events[0]
    assert events[1]["requestObject"] == binding
    assert events[2]["requestObject"] == eviction
    assert events[2]["objectRef"]["namespace"] == "default"


async def test_a_listener_hears_of_a_request_after_what_it_changed() -> None:
    api = Api()
    order: list[str] = []
    api.store.subscribe(lambda change: order.append(f"{change.type} {change.kind.plural}"))
    unsubscribe = api.server.audit.subscribe(lambda event: order.append(f"audit {event['verb']}"))
    api.ask("POST", PODS, pod())
    api.ask("DELETE", f"{PODS}/p")
    assert (order[:2], order[-2:]) == (["ADDED pods", "audit create"], ["DELETED pods", "audit delete"])
    unsubscribe()
    order.clear()
    api.ask("POST", PODS, pod())
    assert order == ["ADDED pods"]


async def test_in_process_everybody_goes_by_the_name_that_he_was_given() -> None:
    api = Api("secret")
    events = audited(api)
    await InProcess(api.server, user="job-controller").request("DELETE", f"{PODS}?labelSelector=a%3Db")
    assert events[0]["user"] == {"username": "job-controller"}
    assert events[0]["requestURI"] == f"{PODS}?labelSelector=a=b"


async def test_over_the_network_the_token_tells_who_asks() -> None:
    server = ApiServer(Clock(), random.Random(7), token="secret", tokens={"other": "escher"})
    events: list[Json] = []
    server.audit.subscribe(events.append)

    def delete(headers: dict[str, str]) -> Any:
        return server.handle(Request("DELETE", f"{PODS}/p", headers=headers))

    for token in ("secret", "other", "wrong"):
        delete({"authorization": f"Bearer {token}"})
    assert [(each["user"]["username"], each["responseStatus"]["code"]) for each in events] == [
        (ADMIN, 404),
        ("escher", 404),
    ]


async def test_where_everybody_is_let_in_nobody_has_a_name() -> None:
    api = Api()
    events = audited(api)
    api.ask("DELETE", f"{PODS}/p")
    assert events[0]["user"] == {"username": ANYBODY}


async def test_a_body_that_cannot_be_read_is_left_out() -> None:
    api = Api()
    events = audited(api)
    api.ask("POST", f"{PODS}/p/eviction", b"{")
    assert "requestObject" not in events[0]
    assert events[0]["responseStatus"]["code"] == 400
