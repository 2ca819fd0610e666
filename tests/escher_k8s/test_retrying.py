"""Requests that may be repeated are, while the service is away or cannot; those that may not are told at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from escher_k8s import AsyncEscher, Claim, Escher, Invalid, Unavailable, Unreachable

RESOURCE = {"namespace": "a", "name": "r", "shared": False, "key": "escher.dev/a.r", "nodes": {"n1": 1}, "version": "7"}
BUSY = "busy"
AWAY = httpx.ConnectError("nobody there")
CUT = httpx.ReadError("cut off")
pytestmark = pytest.mark.usefixtures("pauses")
BOTH = pytest.mark.parametrize("kind", [Escher, AsyncEscher])


class Service:
    """Answers with these, one after the other, and then with the last for ever. BUSY: come again in two seconds."""

    def __init__(self, *answers: httpx.Response | Exception | str) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.method)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        said = {"type": "urn:escher:problem:busy", "detail": "later"}
        return httpx.Response(503, json=said, headers={"Retry-After": "2"})


def call(service: Service, kind: type[Any], work: Callable[[Any], Any], **options: Any) -> Any:
    given: dict[str, Any] = {"transport": httpx.MockTransport(service), "namespace": "a", **options}
    if kind is Escher:
        with Escher("http://escher.test", **given) as escher:
            return work(escher)

    async def awaited() -> Any:
        async with AsyncEscher("http://escher.test", **given) as escher:
            return await work(escher)

    return asyncio.run(awaited())


@BOTH
def test_a_service_that_is_away_for_a_moment_is_waited_for(kind: type[Any], pauses: list[float]) -> None:
    service = Service(AWAY, AWAY, httpx.Response(200, json=RESOURCE))
    assert call(service, kind, lambda escher: escher.get_resource("r")).nodes == {"n1": 1}
    assert service.asked == ["GET"] * 3
    assert pauses == [0.2, 0.4]


@BOTH
def test_one_that_says_when_to_come_again_is_left_alone_until_then(kind: type[Any], pauses: list[float]) -> None:
    service = Service(BUSY, httpx.Response(200, json=RESOURCE))
    call(service, kind, lambda escher: escher.set_resource("r", 1, node_spec="n1"))
    assert pauses == [2.0]


@BOTH
def test_patience_ends(kind: type[Any], pauses: list[float]) -> None:
    with pytest.raises(Unreachable, match="nobody there"):
        call(Service(AWAY), kind, lambda escher: escher.delete_resource("r"), retry_for=3)
    assert pauses == [0.2, 0.4, 0.8]
    with pytest.raises(Unavailable, match="later"):
        call(Service(BUSY), kind, lambda escher: escher.get_resource("r"), retry_for=1)
    assert len(pauses) == 3


@BOTH
@pytest.mark.parametrize(
    "work",
    [
        lambda escher: escher.transact([Claim("me", "n1", {"cpu": 1}, ttl_seconds=60)]),
        lambda escher: escher.patch_policy("p", {"parameters": {}}),
        lambda escher: escher.set_resource("r", 1, node_spec="n1", if_version="7"),
        lambda escher: escher.set_resource("r", 1, node_spec="n1", if_absent=True),
    ],
)
def test_what_may_have_been_done_is_not_done_again(kind: type[Any], work: Any, pauses: list[float]) -> None:
    service = Service(CUT)
    with pytest.raises(Unreachable):
        call(service, kind, work)
    assert (len(service.asked), pauses) == (1, [])


@BOTH
@pytest.mark.parametrize("cause", [AWAY, httpx.ConnectTimeout("slow"), httpx.PoolTimeout("full")])
def test_what_was_never_sent_is(kind: type[Any], cause: httpx.HTTPError) -> None:
    service = Service(cause, httpx.Response(200, json=RESOURCE))
    call(service, kind, lambda escher: escher.set_resource("r", 1, node_spec="n1", if_absent=True))
    assert len(service.asked) == 2


@BOTH
def test_what_changes_nothing_may_be_asked_again(kind: type[Any]) -> None:
    service = Service(AWAY, httpx.Response(200, json={"fits": True, "places": [], "moved": []}))
    assert call(service, kind, lambda escher: escher.what_if(changes=[{"op": "drain", "node": "n1"}])).fits


@BOTH
def test_a_policy_may_be_asked_again_though_the_answer_was_lost(kind: type[Any]) -> None:
    answer = {
        "namespace": "a",
        "policy": "p",
        "type": "queue",
        "task": "t",
        "requirement": {"escher.dev/a.p--unit": "1"},
    }
    said = {"labels": {}, "annotations": {}, "schedulerName": "escher", "effects": [], "notices": ["full"]}
    service = Service(CUT, httpx.Response(200, json={**answer, **said}))
    asked = call(service, kind, lambda escher: escher.ask_policy("p", "t"))
    assert (asked.resources, asked.notices, service.asked) == ({"escher.dev/a.p--unit": "1"}, ("full",), ["POST"] * 2)


@BOTH
def test_a_refusal_is_final(kind: type[Any], pauses: list[float]) -> None:
    refusal = httpx.Response(422, json={"type": "urn:escher:problem:invalid", "detail": "capacity: no"})
    with pytest.raises(Invalid):
        call(Service(refusal), kind, lambda escher: escher.set_resource("r", 1, node_spec="n1"))
    assert pauses == []
