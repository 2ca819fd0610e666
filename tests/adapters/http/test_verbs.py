"""The verbs as kube-scheduler sees them: answers, defects, the barrier, metrics, and framing on a real connection."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import anyio.lowlevel
import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.ports import PodRef
from extender.kube.names import NodeName, PodUid
from tests.adapters.http.fakes import (
    NotedVerbs,
    bind_body,
    filter_body,
    in_process,
    on_loopback,
    pod_json,
    service,
)
from tests.adapters.http.pass_through import PassThrough

pytestmark = pytest.mark.anyio
VICTIMS = {"n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 1}}


def preempt_body(**changes: Any) -> dict[str, Any]:
    return {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": VICTIMS} | changes


def node_json(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": {"allocatable": {"cpu": "8"}}, **more}


def whole_nodes(*nodes: Any) -> dict[str, Any]:
    return {"Pod": pod_json(), "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


# -- answers


async def test_filter_answers_reasons_of_a_pod_that_is_let_nowhere(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    n1, n2 = NodeName("n1"), NodeName("n2")
    verbs.verdict = Verdict((), {n1: "no room"}, {n2: "never"})
    answer = await client.post("/scheduler/filter", json=filter_body(names=[n1, n2]))
    assert answer.content == (
        b'{"Nodes":null,"NodeNames":[],"FailedNodes":{"n1":"no room"},'
        b'"FailedAndUnresolvableNodes":{"n2":"never"},"Error":""}'
    )
    assert answer.headers["content-type"] == "application/json"


async def test_where_a_node_passed_filter_answers_no_reasons(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    """kube-scheduler makes nothing of them."""
    n1, n2, n3 = (NodeName(name) for name in ("n1", "n2", "n3"))
    verbs.verdict = Verdict((n1,), {n2: "no room"}, {n3: "never"})
    answer = await client.post("/scheduler/filter", json=filter_body(names=[n1, n2, n3]))
    assert answer.content == (
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    )


@pytest.mark.parametrize(
    ("path", "asks", "alone"),
    [
        ("filter", {}, False),
        ("filter-only", {}, True),
        ("filter-only", {"containers": [{"resources": {"limits": {"escher.dev/managed": "1"}}}]}, False),
        ("filter-only", {"containers": [{}, {"resources": {"requests": {"escher.dev/managed": "1"}}}]}, False),
        (
            "filter-only",
            {"containers": [{}], "initContainers": [{"resources": {"requests": {"escher.dev/managed": "1"}}}]},
            False,
        ),
    ],
)
async def test_an_entry_that_filters_alone_is_asked_nothing_else_about_pods_without_the_mark(
    client: httpx.AsyncClient, verbs: NotedVerbs, path: str, asks: dict[str, Any], alone: bool
) -> None:
    body = filter_body(names=["n1"])
    body["Pod"]["spec"] = {**body["Pod"].get("spec", {}), **asks}
    answer = await client.post(f"/scheduler/{path}", json=body)
    assert answer.json()["NodeNames"] == ["n1"]
    [(verb, _, _)] = verbs.calls
    assert verb == ("filter alone" if alone else "filter")


async def test_filter_answers_whole_nodes_with_the_bytes_they_came_with(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    verbs.verdict = Verdict((NodeName("n2"),), {NodeName("n1"): "no room"})
    odd = node_json("n2", unknown={"kept": [1.0, "ä", None]})
    answer = await client.post("/scheduler/filter", json=whole_nodes(node_json("n1"), odd))
    assert answer.json()["NodeNames"] is None
    assert answer.json()["Nodes"]["items"] == [odd]
    _, _, names = verbs.calls[0]
    assert names == ["n1", "n2"]


async def test_no_whole_nodes_at_all_are_answered_with_none(client: httpx.AsyncClient) -> None:
    body = {"Pod": pod_json(), "Nodes": {"items": None}, "NodeNames": None}
    answer = await client.post("/scheduler/filter", json=body)
    assert answer.json()["Nodes"] == {"items": [], "metadata": {}}
    assert (await client.post("/scheduler/prioritize", json=body)).json() == []


async def test_an_error_of_filter_has_no_nodes_beside_it(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    verbs.verdict = Verdict((NodeName("n1"),), error="the attempt failed")
    answer = await client.post("/scheduler/filter", json=filter_body())
    assert answer.json()["Error"] == "the attempt failed"
    assert answer.json()["NodeNames"] is None
    answer = await client.post("/scheduler/filter", json=whole_nodes(node_json("n1")))
    assert answer.json()["Nodes"] is None


async def test_prioritize_answers_a_bare_list(client: httpx.AsyncClient) -> None:
    answer = await client.post("/scheduler/prioritize", json=filter_body(names=["n1"]))
    assert answer.content == b'[{"Host":"n1","Score":1}]'
    answer = await client.post("/scheduler/prioritize", json=whole_nodes(node_json("n7")))
    assert answer.content == b'[{"Host":"n7","Score":1}]'


async def test_a_pod_of_which_the_same_is_told_again_is_understood_once(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    changed = pod_json(metadata={**pod_json()["metadata"], "resourceVersion": "2", "labels": {"a": "b"}})
    for verb, pod in (("filter", pod_json()), ("prioritize", pod_json()), ("filter", changed), ("filter", pod_json())):
        assert (await client.post(f"/scheduler/{verb}", json=filter_body(pod))).status_code == 200
    first, same, other, again = (call[1] for call in verbs.calls)
    assert same is first
    assert other.labels == {"a": "b"}
    assert again == first


def test_no_more_than_the_last_pod_is_kept_that_is_larger_than_pods_are() -> None:
    app = service(PassThrough())
    annotations = {"a": "x" * 3 * 2**20}
    tracemalloc.start()
    try:
        for number in range(4):
            told = pod_json(f"p{number}")
            told["metadata"]["annotations"] = annotations
            assert app.calls.filter(json.dumps(filter_body(told)).encode())
        assert tracemalloc.get_traced_memory()[0] < 2 * len(annotations["a"])
    finally:
        tracemalloc.stop()


async def test_what_could_not_be_understood_is_refused_each_time(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "-1"}}}]}
    for verb in ("filter", "prioritize", "filter"):
        answer = await client.post(f"/scheduler/{verb}", json=filter_body(pod_json(spec=spec)))
        assert ("the pod is invalid" in answer.text) == (verb == "filter")
    for _ in range(2):
        assert (await client.post("/scheduler/filter", json=filter_body({"metadata": {}}))).status_code == 400
    assert verbs.calls == []


async def test_bind_passes_names_and_uid_on(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    answer = await client.post("/scheduler/bind", json=bind_body())
    assert answer.content == b'{"Error":""}'
    assert verbs.calls == [("bind", PodRef("team-a", "p", PodUid("uid-p")), "n1")]


async def test_bind_answers_why_not(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: NotedVerbs, pod: PodRef, node: NodeName) -> str:
        return 'the pod is "elsewhere"'

    monkeypatch.setattr(NotedVerbs, "bind", refuse)
    answer = await client.post("/scheduler/bind", json=bind_body())
    assert answer.json() == {"Error": 'the pod is "elsewhere"'}


async def test_preempt_understands_victims_by_uid_and_as_whole_pods(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    answer = await client.post("/scheduler/preempt", json=preempt_body())
    assert answer.json() == {"NodeNameToMetaVictims": VICTIMS}
    pods = [{"metadata": {"uid": uid}} for uid in ("v1", "v2")]
    whole = {"n1": {"Pods": pods, "NumPDBViolations": 1}, "n2": {"Pods": None, "NumPDBViolations": 0}}
    body = preempt_body(NodeNameToVictims=whole, NodeNameToMetaVictims=None)
    answer = await client.post("/scheduler/preempt", json=body)
    assert answer.json() == {"NodeNameToMetaVictims": VICTIMS | {"n2": {"Pods": [], "NumPDBViolations": 0}}}


# -- defects of ours


async def test_a_defect_in_filter_or_bind_is_told_in_error_and_logged_once(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    verbs.fail = KeyError("secret detail")
    for verb, body in (("filter", filter_body()), ("bind", bind_body())):
        with capture_logs() as logged:
            answer = await client.post(f"/scheduler/{verb}", json=body)
        assert answer.status_code == 200
        assert answer.json()["Error"].startswith(f"internal error in Escher's {verb}")
        assert "secret" not in answer.text
        assert [entry["event"] for entry in logged] == ["verb failed"]
        assert logged[0]["exc_info"]


async def test_a_defect_in_prioritize_or_preempt_is_a_problem_and_logged_once(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    verbs.fail = KeyError("secret detail")
    for verb, body in (("prioritize", filter_body()), ("preempt", preempt_body())):
        with capture_logs() as logged:
            answer = await client.post(f"/scheduler/{verb}", json=body)
        assert answer.status_code == 500
        assert answer.json()["type"] == "urn:escher:problem:internal"
        assert "secret" not in answer.text
        assert [entry["event"] for entry in logged] == ["verb failed"]


async def test_an_answer_that_names_a_node_never_sent_is_a_defect(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    verbs.verdict = Verdict((NodeName("n9"),))
    with capture_logs() as logged:
        answer = await client.post("/scheduler/filter", json=whole_nodes(node_json("n1")))
    assert answer.json()["Error"]
    assert len(logged) == 1


async def test_after_a_defect_the_next_call_is_answered(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    verbs.fail = RuntimeError()
    with capture_logs():
        await client.post("/scheduler/filter", json=filter_body())
    verbs.fail = None
    assert (await client.post("/scheduler/filter", json=filter_body())).json()["NodeNames"] == ["n1", "n2"]


# -- the barrier


async def test_a_bind_at_the_barrier_holds_up_nobody_else(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    verbs.gate = asyncio.Event()
    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(lambda n: client.post("/scheduler/bind", json=bind_body(PodUID=f"u{n}")), number)
        while len(verbs.calls) < 8:
            await anyio.lowlevel.checkpoint()
        answer = await client.post("/scheduler/filter", json=filter_body())
        assert answer.json()["NodeNames"] == ["n1", "n2"]
        assert verbs.bound == []
        verbs.gate.set()
    assert len(verbs.bound) == 8


async def test_a_bind_goes_on_when_its_caller_leaves(verbs: NotedVerbs) -> None:
    verbs.gate = asyncio.Event()
    app = service(verbs)
    async with on_loopback(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(bind_body()).encode()
        writer.write(b"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        while not verbs.calls:
            await anyio.lowlevel.checkpoint()
        writer.close()
        await writer.wait_closed()
        verbs.gate.set()
        await app.calls.drain()
    assert [pod.name for pod in verbs.bound] == ["p"]


async def test_a_bind_goes_on_when_its_server_gives_the_request_up(verbs: NotedVerbs) -> None:
    verbs.gate = asyncio.Event()
    app = service(verbs)
    async with in_process(app) as client:
        request = asyncio.create_task(client.post("/scheduler/bind", json=bind_body()))
        while not verbs.calls:
            await anyio.lowlevel.checkpoint()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    verbs.gate.set()
    await app.calls.drain()
    assert len(verbs.bound) == 1


# -- metrics


async def test_every_verb_counts_its_calls_and_nodes(verbs: NotedVerbs) -> None:
    registry = CollectorRegistry()
    async with in_process(service(verbs, registry=registry)) as client:
        await client.post("/scheduler/filter", json=filter_body())
        await client.post("/scheduler/filter", json=whole_nodes(node_json("n1")))
        await client.post("/scheduler/prioritize", json=filter_body(names=["n1"]))
        await client.post("/scheduler/bind", json=bind_body())
        await client.post("/scheduler/preempt", json=preempt_body())
        await client.post("/scheduler/nonsense", json={})

    def value(name: str, verb: str) -> float | None:
        return registry.get_sample_value(name, {"verb": verb})

    assert value("escher_extender_duration_seconds_count", "filter") == 2
    assert value("escher_extender_nodes_sum", "filter") == 3
    for verb in ("prioritize", "bind", "preempt"):
        assert value("escher_extender_duration_seconds_count", verb) == 1
        assert value("escher_extender_nodes_sum", verb) == 1
    assert value("escher_extender_duration_seconds_count", "nonsense") is None


# -- framing on a real connection


async def call_raw(port: int, request: bytes, *, half_close: bool = False) -> bytes:
    """What the server sends until it has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if half_close:
        writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_connection_is_kept_from_call_to_call(verbs: NotedVerbs) -> None:
    async with on_loopback(service(verbs)) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        first = await client.post("/scheduler/filter", json=filter_body())
        second = await client.post("/scheduler/nonsense", json=filter_body())
        third = await client.post("/scheduler/filter", json=filter_body())
        local = first.extensions["network_stream"].get_extra_info("client_addr")
        for answer in (second, third):
            assert answer.headers["content-length"] == str(len(answer.content))
            assert "connection" not in answer.headers
            assert not answer.content.endswith(b"\n")
            # The same local port: the same connection.
            assert answer.extensions["network_stream"].get_extra_info("client_addr") == local


async def test_a_chunked_body_is_understood(verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body()).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:40], body[40:90], body[90:]))
    head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with on_loopback(service(verbs)) as port:
        answer = await call_raw(port, head + chunks + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(verbs.calls) == 1


async def test_a_body_that_ends_early_changes_nothing(verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body()).encode()
    head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with on_loopback(service(verbs)) as port:
        await call_raw(port, head + body[:50], half_close=True)
        await call_raw(port, head, half_close=True)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/healthz")).status_code == 200
    assert verbs.calls == []


async def test_a_body_far_over_the_limit_is_refused_while_it_is_still_being_sent(verbs: NotedVerbs) -> None:
    async with on_loopback(service(verbs, body_limit=2**20)) as port:
        head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % 10**8
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b" " * 1000)
        answer = await reader.readuntil(b"}")
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"content-length: " in answer.lower()
    assert verbs.calls == []


async def test_a_hundred_megabytes_on_a_real_connection_are_answered(verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body()).encode().ljust(100_000_000)
    async with on_loopback(service(verbs)) as port, httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/scheduler/filter", content=body)
    assert answer.json()["NodeNames"] == ["n1", "n2"]
