"""The API as a whole: health, documentation, one form for every error, and nothing that runs in a thread."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from extender import __version__
from extender.adapters.http.api import create_api
from extender.adapters.http.server.asgi import MANAGEMENT_BODY_LIMIT, create_app
from extender.adapters.http.server.bodies import replaying
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, Ready, in_process, on_loopback, service
from tests.adapters.http.told import problem

pytestmark = pytest.mark.anyio


def api() -> FastAPI:
    return create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry())


async def test_the_process_is_alive_before_it_is_ready(client: httpx.AsyncClient, ready: Ready) -> None:
    ready.now = False
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    problem(await client.get("/readyz"), 503)
    ready.now = True
    said = {"status": "ok", "ages": {}, "leading": True, "leader": "", "without": [], "lost": {}}
    assert (await client.get("/readyz")).json() == said


async def test_how_old_what_is_known_is_stands_in_readyz() -> None:
    app = create_app(
        NotedVerbs(),
        NotedManagement().by_noun(),
        ready=lambda: True,
        registry=CollectorRegistry(),
        ages=lambda: {"pods": 312.46, "nodes": 0.5},
    )
    async with in_process(app) as client:
        assert (await client.get("/readyz")).json()["ages"] == {"pods": 312.5, "nodes": 0.5}


async def test_the_version_is_told(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json()["version"] == __version__


async def test_metrics_are_those_of_the_registry_handed_in(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'escher_extender_duration_seconds_count{verb="filter"} 0.0' in answer.text


async def test_two_services_in_one_process_do_not_meet() -> None:
    """They have the same routes, and each answers from what it was made with."""
    one, other = NotedManagement(), NotedManagement()
    late = Ready()
    late.now = False
    async with (
        in_process(service(management=one)) as first,
        in_process(service(management=other, ready=late)) as second,
    ):
        assert (await first.delete("/v1/namespaces/team-a/resources/r")).status_code != 503
        assert (len(one.asked), len(other.asked)) == (1, 0)
        problem(await second.get("/readyz"), 503)
        assert (await first.get("/readyz")).status_code == 200
        late.now = True
        assert (await second.delete("/v1/namespaces/team-a/resources/r")).status_code != 503
        assert (len(one.asked), len(other.asked)) == (1, 1)


async def test_the_documentation_shows_every_call_and_the_words_of_its_fields(client: httpx.AsyncClient) -> None:
    assert (await client.get("/docs")).status_code == 200
    described = (await client.get("/openapi.json")).json()
    assert {
        "/healthz",
        "/readyz",
        "/metrics",
        "/version",
        "/v1/namespaces/{ns}/resources",
        "/v1/namespaces/{ns}/resources/{name}",
        "/v1/cluster-state",
        "/v1/transactions",
        "/v1/namespaces/{ns}/gangs",
        "/v1/namespaces/{ns}/gangs/{name}",
        "/v1/namespaces/{ns}/gangs/{name}/explain",
        "/v1/namespaces/{ns}/pods/{pod}/explain",
        "/v1/safety-switches",
        "/v1/brake",
        "/v1/policy-types",
        "/v1/namespaces/{ns}/policies",
        "/v1/namespaces/{ns}/policies:validate",
        "/v1/namespaces/{ns}/quota",
        "/v1/namespaces/{ns}/policies/{name}",
        "/v1/namespaces/{ns}/policies/{name}:ask",
        "/v1/events",
        "/v1/what-if",
        "/v1/state-dump",
    } == set(described["paths"])
    assert set(described["paths"]["/v1/namespaces/{ns}/resources/{name}"]) == {"get", "put", "delete"}
    body = described["components"]["schemas"]["ResourceBody"]
    assert body["additionalProperties"] is False
    assert body["properties"]["capacity"]["minimum"] == 0
    assert body["examples"]


def test_no_endpoint_runs_in_a_thread() -> None:
    # A thread would race with the ledger's only owner.
    routes = [route for route in api().routes if isinstance(route, APIRoute)]
    assert all(inspect.iscoroutinefunction(route.endpoint) for route in routes)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/scheduler", "/v1/namespaces/team-a", "/%ff%00"])
async def test_what_is_nowhere_is_404(client: httpx.AsyncClient, path: str) -> None:
    problem(await client.get(path), 404)


async def test_a_wrong_method_is_405_and_says_which_are_right(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/cluster-state")
    told = problem(answer, 405)
    assert answer.headers["allow"] == "GET"
    assert told["detail"] == "POST is not allowed here; use GET"


async def test_a_management_body_over_its_limit_is_refused(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    problem(await client.post("/v1/transactions", content=b" " * (MANAGEMENT_BODY_LIMIT + 1)), 413)
    problem(await client.post("/v1/transactions", content=endless()), 413)
    assert management.asked == []


async def test_a_defect_is_a_problem_without_a_traceback_and_logged_once(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.fail = KeyError("secret detail")
    with capture_logs() as logged:
        answer = await client.get("/v1/cluster-state")
    problem(answer, 500)
    assert "secret" not in answer.text
    assert [entry["event"] for entry in logged] == ["request failed"]
    assert logged[0]["exc_info"]


async def test_other_errors_of_the_framework_are_problems_too() -> None:
    app = api()

    async def teapot() -> None:
        raise HTTPException(418, "short and stout", {"X-Tea": "green"})

    async def large() -> None:
        raise HTTPException(413, "too much tea")

    app.add_api_route("/tea", teapot)
    app.add_api_route("/pot", large)
    async with in_process(app) as client:
        answer = await client.get("/tea")
        assert answer.headers["x-tea"] == "green"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json() == {
            "type": "about:blank",
            "title": "I'm a Teapot",
            "status": 418,
            "detail": "short and stout",
            "field": None,
        }
        problem(await client.get("/pot"), 413)


async def test_a_defect_after_the_answer_began_is_logged_and_nothing_is_sent_after_it() -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)
        raise RuntimeError("broken pipe")

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [], "query_string": b""}
    with capture_logs() as logged:
        await service()(scope, receive, send)
    assert len(sent) == 1
    assert [entry["event"] for entry in logged] == ["request failed"]


async def test_a_defect_of_the_framework_itself_is_a_problem_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    app = service()
    monkeypatch.setattr(app, "_behind", broken)
    async with in_process(app) as client:
        with capture_logs() as logged:
            answer = await client.get("/healthz")
    assert "secret" not in problem(answer, 500)["detail"]
    assert len(logged) == 1


async def test_a_caller_who_left_before_his_body_came_gets_no_answer() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(f"sent to nobody: {message}")

    scope = {"type": "http", "method": "PUT", "path": "/v1/transactions", "headers": []}
    await service()(scope, receive, send)


async def test_an_endpoint_is_told_when_its_caller_leaves() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    again = replaying(b"{}", receive)
    assert (await again())["body"] == b"{}"
    assert (await again())["type"] == "http.disconnect"


async def test_what_starts_and_stops_with_the_server_does(verbs: NotedVerbs) -> None:
    happened: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        happened.append("started")
        yield
        happened.append("stopped")

    async with on_loopback(service(verbs, lifespan=lifespan)) as port, httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        assert happened == ["started"]
    assert happened == ["started", "stopped"]
