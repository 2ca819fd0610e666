"""A span for each call of a verb and of the management API, in the trace of its caller, with HTTP's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from opentelemetry.trace import INVALID_SPAN, SpanKind
from starlette.types import Receive, Scope, Send

from extender.adapters.http.server.peer import STRANGER
from extender.adapters.tracing.calls import TracedService, call, current
from extender.adapters.tracing.tracing import Tracing
from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.ports import PodRef
from extender.core.gang_ask import GangAsk
from extender.core.gangs.state.gang import GangPlanned
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, bind_body, filter_body, in_process, service
from tests.adapters.http.test_verbs import VICTIMS, preempt_body
from tests.adapters.tracing.spans import Kept, about, parent, status
from tests.builders import gang_pods, pod

pytestmark = pytest.mark.anyio
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
N1, N2 = NodeName("n1"), NodeName("n2")


class Traced:
    """The whole HTTP side, traced, before verbs that note."""

    def __init__(self, kept: Kept) -> None:
        tracing = Tracing(kept.provider)
        self.verbs, self.management = NotedVerbs(), NotedManagement()
        self.gang = gang_pods("train", 1)[0]
        self.untraced = service(tracing.verbs(self.verbs, {self.gang.uid: self.gang}), self.management)
        self.served = tracing.served(self.untraced)
        self.tracing = tracing


@pytest.fixture
def traced(kept: Kept) -> Traced:
    return Traced(kept)


@pytest.fixture
async def client(traced: Traced) -> AsyncIterator[httpx.AsyncClient]:
    async with in_process(traced.served) as calling:
        yield calling


# -- verbs


async def test_filter_tells_what_was_asked_and_what_came_of_it(client: httpx.AsyncClient, kept: Kept) -> None:
    assert (await client.post("/scheduler/filter", json=filter_body())).status_code == 200
    span = kept.one()
    assert (span.name, span.kind, status(span)) == ("POST /scheduler/filter", SpanKind.SERVER, ("UNSET", None))
    assert about(span) == {
        "http.request.method": "POST",
        "http.route": "/scheduler/filter",
        "http.response.status_code": 200,
        "url.path": "/scheduler/filter",
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "k8s.namespace.name": "team-a",
        "k8s.pod.name": "p",
        "k8s.pod.uid": "uid-p",
        "escher.verb": "filter",
        "escher.nodes.offered": 2,
        "escher.nodes.passed": 2,
        "escher.outcome": "passed",
    }


async def test_a_pod_that_fits_nowhere_is_no_error_and_its_reason_is_told(
    client: httpx.AsyncClient, traced: Traced, kept: Kept
) -> None:
    traced.verbs.verdict = Verdict(rejected={N1: "too little room", N2: "another"})
    await client.post("/scheduler/filter", json=filter_body())
    span = kept.one()
    said = about(span)
    assert (said["escher.outcome"], said["escher.reason"], said["escher.nodes.passed"]) == (
        "rejected", "too little room", 0,
    )  # fmt: skip
    assert status(span) == ("UNSET", None)


async def test_a_verdict_that_is_an_error_is_one_though_http_says_200(
    client: httpx.AsyncClient, traced: Traced, kept: Kept
) -> None:
    traced.verbs.verdict = Verdict(error="not now")
    assert (await client.post("/scheduler/filter", json=filter_body())).status_code == 200
    assert status(kept.one()) == ("ERROR", "not now")
    assert about(kept.one())["escher.outcome"] == "failed"


async def test_prioritize_and_preempt_tell_their_own(client: httpx.AsyncClient, kept: Kept) -> None:
    await client.post("/scheduler/prioritize", json=filter_body())
    await client.post("/scheduler/preempt", json=preempt_body())
    scored, preempted = map(about, kept.ended)
    assert (scored["escher.verb"], scored["escher.nodes.offered"], scored["k8s.node.name"]) == ("prioritize", 2, "n2")
    assert (preempted["escher.verb"], preempted["escher.nodes.passed"]) == ("preempt", len(VICTIMS))


async def test_bind_is_over_when_it_is_answered_and_says_why_it_failed(
    client: httpx.AsyncClient, traced: Traced, kept: Kept
) -> None:
    traced.verbs.gate = asyncio.Event()
    binding = asyncio.ensure_future(client.post("/scheduler/bind", json=bind_body()))
    while not traced.verbs.calls:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0)
    assert kept.ended == []
    traced.verbs.gate.set()
    await binding
    said = about(kept.one())
    assert (said["escher.verb"], said["k8s.node.name"], said["escher.outcome"]) == ("bind", "n1", "bound")


@pytest.mark.parametrize(("verb", "http"), [("filter", 200), ("prioritize", 500), ("bind", 200), ("preempt", 500)])
async def test_a_defect_in_a_verb_is_an_error_whatever_http_says(
    client: httpx.AsyncClient, traced: Traced, kept: Kept, verb: str, http: int
) -> None:
    traced.verbs.fail = RuntimeError("a defect")
    body = {"bind": bind_body(), "preempt": preempt_body()}.get(verb) or filter_body()
    assert (await client.post(f"/scheduler/{verb}", json=body)).status_code == http
    span = kept.one()
    assert (status(span)[0], about(span)["escher.outcome"]) == ("ERROR", "failed")
    assert "RuntimeError" in str(about(span)["escher.reason"])
    assert [each.name for each in span.events] == ["exception"]


async def test_a_bind_that_is_refused_says_why(kept: Kept) -> None:
    class Refusing(NotedVerbs):
        async def bind(self, pod: PodRef, node: NodeName) -> str:
            return "the gang's quorum was not complete"

    tracing = Tracing(kept.provider)
    async with in_process(tracing.served(service(tracing.verbs(Refusing(), {})))) as calling:
        await calling.post("/scheduler/bind", json=bind_body())
    assert status(kept.one()) == ("ERROR", "the gang's quorum was not complete")
    assert about(kept.one())["escher.outcome"] == "refused"


async def test_a_body_that_is_none_is_told_as_http_has_it(client: httpx.AsyncClient, kept: Kept) -> None:
    assert (await client.post("/scheduler/filter", content=b"{")).status_code == 400
    assert about(kept.one())["http.response.status_code"] == 400
    assert status(kept.one()) == ("UNSET", None)


# -- management


async def test_a_call_of_the_management_api_is_named_by_its_route(client: httpx.AsyncClient, kept: Kept) -> None:
    path = "/v1/namespaces/team-a/resources/data1"
    assert (await client.put(path, json={"capacity": 1, "node_spec": {}})).status_code == 200
    span = kept.one()
    route = "/v1/namespaces/{ns}/resources/{name}"
    assert (span.name, about(span)["http.route"], about(span)["url.path"]) == (f"PUT {route}", route, path)


async def test_a_defect_is_an_error(client: httpx.AsyncClient, traced: Traced, kept: Kept) -> None:
    traced.management.fail = RuntimeError("a defect")
    assert (await client.get("/v1/namespaces/team-a/gangs")).status_code == 500
    assert status(kept.one()) == ("ERROR", None)
    assert about(kept.one())["error.type"] == "500"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/version", "/openapi.json"])
async def test_who_polls_leaves_no_span(client: httpx.AsyncClient, kept: Kept, path: str) -> None:
    assert (await client.get(path)).status_code == 200
    assert kept.ended == []


async def test_paths_that_are_made_up_make_no_names(client: httpx.AsyncClient, kept: Kept) -> None:
    await client.get("/v1/" + "x" * 5000)
    await client.request("MADEUP", "/scheduler/made-up")
    first, second = kept.ended
    assert (first.name, len(str(about(first)["url.path"]))) == ("GET", 512)
    assert (second.name, about(second)["http.request.method"]) == ("_OTHER", "_OTHER")


async def test_tokens_and_queries_are_not_told(client: httpx.AsyncClient, kept: Kept) -> None:
    await client.get("/v1/cluster-state?namespace=s3cret", headers={"Authorization": "Bearer s3cret"})
    assert "s3cret" not in kept.one().to_json()


# -- traces


async def test_the_callers_span_is_the_parent(client: httpx.AsyncClient, kept: Kept) -> None:
    await client.post("/scheduler/filter", json=filter_body(), headers={"traceparent": CALLER})
    span = kept.one()
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == CALLER.split("-")[1]
    assert parent(span) == int(CALLER.split("-")[2], 16)


async def test_who_says_that_he_is_not_sampled_is_not(client: httpx.AsyncClient, kept: Kept) -> None:
    answer = await client.post("/scheduler/filter", json=filter_body(), headers={"traceparent": CALLER[:-1] + "0"})
    assert answer.json()["NodeNames"] == ["n1", "n2"]
    assert kept.ended == []


@pytest.mark.parametrize("said", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", CALLER + "\xff" * 3000])
async def test_a_parent_that_is_none_is_not_believed(client: httpx.AsyncClient, kept: Kept, said: str) -> None:
    headers = [(b"traceparent", said.encode("latin-1")), (b"baggage", b"=;,=" * 500)]
    assert (await client.post("/scheduler/filter", json=filter_body(), headers=headers)).status_code == 200
    assert parent(kept.one()) is None


async def test_there_is_no_call_but_while_one_is_answered(kept: Kept) -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(call())
        seen.append(current())
        raise ValueError("a defect of the server")

    traced = TracedService(Bare(app), kept.tracer, ["filter"], lambda: 7.0)
    assert current() is None
    with pytest.raises(ValueError, match="a defect"):
        async with in_process(traced) as calling:
            await calling.get("/v1/safety-switches")
    assert call() is INVALID_SPAN
    assert seen[0] is seen[1].span
    assert seen[1].over == 7.0
    [event] = kept.one().events
    assert (event.name, status(kept.one())[0]) == ("exception", "ERROR")


class Bare:
    """An application that answers nothing by itself."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def at_once(self, method: str, path: str, body: bytes) -> None:
        raise AssertionError("nobody is to ask")

    def may_schedule(self, peer: Any) -> bool:
        return bool(peer is STRANGER)


async def test_nothing_is_answered_without_its_headers_and_who_may_schedule_is_asked_of_what_is_served(
    traced: Traced, kept: Kept
) -> None:
    served = TracedService(Bare(traced.untraced), kept.tracer, [])
    assert served.at_once("POST", "/scheduler/filter", b"{}") is None
    assert served.may_schedule(STRANGER)


# -- a gang's plan


async def test_a_members_bind_is_linked_to_its_gangs_plan(
    client: httpx.AsyncClient, traced: Traced, kept: Kept
) -> None:
    assert isinstance(traced.gang.gang, GangAsk)
    key = traced.gang.gang.key
    traced.tracing.told(lambda effect: None)(GangPlanned(key))
    member = {"PodName": traced.gang.name, "PodNamespace": traced.gang.namespace, "PodUID": traced.gang.uid}
    await client.post("/scheduler/bind", json={**member, "Node": "n1"})
    bind = kept.one()
    traced.tracing.given_up(None)(key, "too late")
    plan = kept.named("gang")
    [link] = bind.links
    assert link.context == plan.context
    assert about(bind)["escher.gang"] == key.name


async def test_a_pod_of_no_gang_and_a_gang_without_plan_are_linked_to_nothing(
    client: httpx.AsyncClient, traced: Traced, kept: Kept
) -> None:
    member = {"PodName": traced.gang.name, "PodNamespace": traced.gang.namespace, "PodUID": traced.gang.uid}
    await client.post("/scheduler/bind", json={**member, "Node": "n1"})
    await client.post("/scheduler/bind", json=bind_body())
    assert [list(each.links) for each in kept.ended] == [[], []]
    assert [about(each).get("escher.gang") for each in kept.ended] == ["train", None]


async def test_verbs_that_nobody_calls_over_http_have_no_span_and_the_same_answers(traced: Traced, kept: Kept) -> None:
    verbs = traced.tracing.verbs(traced.verbs, {})
    assert verbs.filter(pod("p"), [N1], alone=True).passed == (N1,)
    assert verbs.prioritize(pod("p"), [N1]) == {N1: 1}
    assert verbs.preempt(pod("p"), {}) == {}
    assert [each[0] for each in traced.verbs.calls] == ["filter alone", "prioritize", "preempt"]
    assert kept.ended == []
    assert GangKey("default", "train") == (traced.gang.gang.key if isinstance(traced.gang.gang, GangAsk) else None)
