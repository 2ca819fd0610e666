"""Each write to the API server is a span in its call's trace; what fails says how; reads have none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from extender.adapters.kubernetes.writers.writers import ApiBinder, ApiNodeStatusWriter
from extender.adapters.tracing import calls
from extender.adapters.tracing.writes import TracedCluster, told_of
from extender.app.contracts.ports import PodRef
from extender.kube.errors import Away, Occupied
from extender.kube.names import NodeName, PodUid
from tests.adapters.tracing.spans import Kept, about, parent, status

pytestmark = pytest.mark.anyio
POD = PodRef("team-a", "p", PodUid("u"))
N1 = NodeName("n1")


class Answering:
    """A connection that answers `{}`, or raises `fail`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.fail: BaseException | None = None
        self.warm = 0

    async def request(self, method: str, path: str, body: bytes | None = None, **more: Any) -> bytes:
        self.asked.append((method, path, body, more))
        if self.fail is not None:
            raise self.fail
        return b"{}"

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        yield b"line"

    async def keep_warm(self, connections: int) -> None:
        self.warm = connections


@pytest.fixture
def api() -> Answering:
    return Answering()


class Now:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def cluster(api: Answering, kept: Kept, now: Now) -> TracedCluster:
    return TracedCluster(api, kept.tracer, now)


@contextmanager
def within_a_call(kept: Kept) -> Iterator[calls.Call]:
    call = calls.Call(kept.tracer.start_span("call"))
    before = calls._current.set(call)
    yield call
    calls._current.reset(before)
    call.span.end()


async def test_a_binding_is_a_child_of_the_bind_that_it_is_for(kept: Kept, cluster: TracedCluster) -> None:
    with within_a_call(kept) as call:
        await ApiBinder(cluster).bind(POD, N1)
    span = kept.named("POST pods/binding")
    assert (span.kind, status(span)) == (SpanKind.CLIENT, ("UNSET", None))
    assert parent(span) == call.span.get_span_context().span_id
    assert about(span) == {
        "http.request.method": "POST",
        "url.template": "/api/v1/namespaces/{namespace}/pods/{name}/binding",
        "k8s.namespace.name": "team-a",
        "k8s.pod.name": "p",
    }


async def test_a_nodes_status_is_told_by_its_node_and_without_a_call_it_is_a_trace_of_its_own(
    kept: Kept, cluster: TracedCluster
) -> None:
    await ApiNodeStatusWriter(cluster).advertise(N1, {}, [])
    span = kept.named("PATCH nodes/status")
    assert (parent(span), about(span)["k8s.node.name"], list(span.links)) == (None, "n1", [])


async def test_a_write_that_is_refused_is_an_error_with_its_status(
    kept: Kept, cluster: TracedCluster, api: Answering
) -> None:
    api.fail = Occupied(409, "already bound")
    with pytest.raises(Occupied):
        await ApiBinder(cluster).bind(POD, N1)
    span = kept.one()
    assert status(span) == ("ERROR", "already bound")
    assert (about(span)["http.response.status_code"], about(span)["error.type"]) == (409, "Occupied")
    [event] = span.events
    assert (event.name, dict(event.attributes or {})["exception.message"]) == ("exception", "already bound")


async def test_a_write_that_nobody_answers_is_an_error_for_each_try(
    kept: Kept, cluster: TracedCluster, api: Answering
) -> None:
    api.fail = Away("connection refused")
    for _ in range(2):
        with pytest.raises(Away):
            await ApiBinder(cluster).bind(POD, N1)
    assert [status(each) for each in kept.ended] == [("ERROR", "connection refused")] * 2


async def test_a_write_that_is_given_up_says_so(kept: Kept, cluster: TracedCluster, api: Answering) -> None:
    api.fail = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await ApiBinder(cluster).bind(POD, N1)
    assert about(kept.one())["error.type"] == "CancelledError"


async def test_reads_and_streams_pass_and_have_none(kept: Kept, cluster: TracedCluster, api: Answering) -> None:
    assert await cluster.request("GET", "/version", within=3.0) == b"{}"
    assert [line async for line in cluster.lines("/api/v1/pods", silence=1.0)] == [b"line"]
    await cluster.keep_warm(4)
    assert (api.warm, api.asked[0][3]["within"], kept.ended) == (4, 3.0, [])


async def test_what_a_call_began_is_in_its_trace_soon_after_and_linked_to_it_later(
    kept: Kept, cluster: TracedCluster, now: Now
) -> None:
    with within_a_call(kept) as call:
        call.over = 0.0
        for now.at in (9.9, 10.1):
            await cluster.request("PATCH", "/api/v1/nodes/n1/status", b"{}")
    soon, later = [each for each in kept.ended if each.name != "call"]
    assert parent(soon) == call.span.get_span_context().span_id
    assert (parent(later), list(soon.links)) == (None, [])
    [link] = later.links
    assert link.context == call.span.get_span_context()


@pytest.mark.parametrize(
    ("path", "target", "template", "named"),
    [
        ("/api/v1/namespaces/a/pods/p/binding?timeout=2s", "pods/binding",
         "/api/v1/namespaces/{namespace}/pods/{name}/binding", {"k8s.namespace.name": "a", "k8s.pod.name": "p"}),
        ("/api/v1/nodes/n%2F1/status", "nodes/status", "/api/v1/nodes/{name}/status", {"k8s.node.name": "n/1"}),
        ("/apis/escher.dev/v1alpha1/namespaces/a/ephemeralresources/r", "ephemeralresources",
         "/apis/escher.dev/v1alpha1/namespaces/{namespace}/ephemeralresources/{name}",
         {"k8s.namespace.name": "a", "escher.object": "r"}),
        ("/apis/events.k8s.io/v1/namespaces/a/events", "events",
         "/apis/events.k8s.io/v1/namespaces/{namespace}/events", {"k8s.namespace.name": "a"}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", "tokenreviews",
         "/apis/authentication.k8s.io/v1/tokenreviews", {}),
        ("/api/v1/namespaces/a", "namespaces", "/api/v1/namespaces/{name}", {"escher.object": "a"}),
        ("/api", "", "/api", {}),
    ],
)  # fmt: skip
def test_a_path_tells_what_is_written(path: str, target: str, template: str, named: dict[str, str]) -> None:
    assert told_of(path) == (target, {**named, "url.template": template})
