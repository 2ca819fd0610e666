"""Bad calls of the verbs: always a clear answer, never a traceback, and the application is not asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.adapters.http.fakes import (
    NotedVerbs,
    Ready,
    asking,
    bind_body,
    filter_body,
    in_process,
    pod_json,
    service,
)
from tests.adapters.http.told import problem

pytestmark = pytest.mark.anyio
MIB = 2**20


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
@pytest.mark.parametrize("body", [b"", b"not JSON", b"{", b'{"Pod": }', b"\xff\xfe", b'{"Pod":1}{', b"[" * 50_000])
async def test_what_is_not_json_is_refused_as_such(
    client: httpx.AsyncClient, verbs: NotedVerbs, verb: str, body: bytes
) -> None:
    told = problem(await client.post(f"/scheduler/{verb}", content=body), 400)
    assert told["detail"]
    assert verbs.calls == []


@pytest.mark.parametrize("cut", [1, 10, 100, 200])
async def test_a_truncated_body_is_refused(client: httpx.AsyncClient, verbs: NotedVerbs, cut: int) -> None:
    body = json.dumps(filter_body()).encode()
    told = problem(await client.post("/scheduler/filter", content=body[:-cut]), 400)
    assert told["title"] == "The body is not JSON"
    assert "truncated" in told["detail"]
    assert verbs.calls == []


async def test_a_body_in_lower_case_is_refused_and_not_taken_for_an_empty_pod(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    body = {"pod": pod_json(), "nodes": None, "nodenames": ["n1"]}
    told = problem(await client.post("/scheduler/filter", json=body), 400)
    assert told["field"] == "Pod"
    assert "match kube-scheduler's exactly" in told["detail"]
    assert verbs.calls == []


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("filter", {"Pod": pod_json()}, "Nodes"),
        ("filter", {"Pod": pod_json(), "Nodes": None, "NodeNames": None}, "NodeNames"),
        ("prioritize", {"Pod": pod_json(), "Nodes": None, "NodeNames": None}, "NodeNames"),
        ("filter", {"Pod": None, "Nodes": None, "NodeNames": []}, "Pod"),
        ("filter", {"Pod": {}, "Nodes": None, "NodeNames": []}, "Pod.metadata"),
        ("filter", {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": []}, "Pod.metadata.namespace"),
        ("filter", filter_body(names=["n1", 7]), "NodeNames[1]"),  # type: ignore[list-item]
        ("filter", filter_body({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": 7}), "Pod.spec"),
        ("filter", {"Pod": pod_json(), "Nodes": {"items": [{}]}, "NodeNames": None}, "Nodes.items[0].metadata"),
        (
            "filter",
            {"Pod": pod_json(), "Nodes": {"items": [{"metadata": {"name": ""}}]}, "NodeNames": None},
            "Nodes.items[0].metadata.name",
        ),
        (
            "prioritize",
            {"Pod": pod_json(), "Nodes": {"items": [{"metadata": {"name": 1}}]}, "NodeNames": None},
            "Nodes.items[0].metadata.name",
        ),
        ("bind", {k.lower(): v for k, v in bind_body().items()}, "PodName"),
        ("bind", bind_body(PodUID=""), "PodUID"),
        ("bind", bind_body(Node=""), "Node"),
        ("bind", {**bind_body(), "Node": 7}, "Node"),
        ("preempt", {"Pod": pod_json()}, "NodeNameToVictims"),
        (
            "preempt",
            {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": None},
            "NodeNameToMetaVictims",
        ),
        (
            "preempt",
            {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": {"n1": {"Pods": []}}},
            "NodeNameToMetaVictims[...].NumPDBViolations",
        ),
    ],
)
async def test_a_body_of_another_shape_is_refused_and_its_field_named(
    client: httpx.AsyncClient, verbs: NotedVerbs, verb: str, body: object, field: str
) -> None:
    told = problem(await client.post(f"/scheduler/{verb}", json=body), 400)
    assert told["title"] == "The body has the wrong structure"
    assert told["field"] == field
    assert verbs.calls == []


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_pod_without_uid_is_refused(client: httpx.AsyncClient, verbs: NotedVerbs, verb: str) -> None:
    rest: dict[str, Any] = (
        {"NodeNameToVictims": None, "NodeNameToMetaVictims": {}}
        if verb == "preempt"
        else {"Nodes": None, "NodeNames": []}
    )
    for metadata in ({"name": "p", "namespace": "n"}, {"name": "p", "namespace": "n", "uid": ""}):
        body = {"Pod": pod_json(metadata=metadata), **rest}
        told = problem(await client.post(f"/scheduler/{verb}", json=body), 400)
        assert told["field"] == "Pod.metadata.uid"
    assert verbs.calls == []


async def test_an_unknown_verb_is_answered_with_those_that_there_are(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    for path in ("/scheduler/evict", "/scheduler/", "/scheduler/filter/", "/scheduler/filter/x", "/scheduler/FILTER"):
        told = problem(await client.post(path, json=filter_body()), 404)
        assert "filter, filter-only, prioritize, bind, preempt" in told["detail"]
    assert verbs.calls == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_a_verb_is_called_with_post_only(client: httpx.AsyncClient, verbs: NotedVerbs, method: str) -> None:
    answer = await client.request(method, "/scheduler/filter", json=filter_body())
    problem(answer, 405)
    assert answer.headers["allow"] == "POST"
    assert verbs.calls == []


async def test_before_the_first_full_sync_every_verb_says_so(
    client: httpx.AsyncClient, verbs: NotedVerbs, ready: Ready
) -> None:
    ready.now = False
    for verb in ("filter", "prioritize", "bind", "preempt"):
        answer = await client.post(f"/scheduler/{verb}", json=filter_body())
        told = problem(answer, 503)
        assert told["title"] == "The service is not ready"
        assert answer.headers["retry-after"] == "1"
    assert verbs.calls == []


# -- size


async def test_a_body_over_the_limit_is_refused_from_its_announced_length(verbs: NotedVerbs) -> None:
    async with in_process(service(verbs, body_limit=MIB)) as client:
        told = problem(await client.post("/scheduler/filter", content=b" " * (MIB + 1)), 413)
    assert str(MIB) in told["detail"]
    assert verbs.calls == []


async def test_a_streamed_body_over_the_limit_is_refused_though_no_length_was_announced(verbs: NotedVerbs) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    async with in_process(service(verbs, body_limit=MIB)) as client:
        problem(await client.post("/scheduler/filter", content=endless()), 413)
    assert verbs.calls == []


async def test_one_piece_over_the_limit_is_refused_though_no_length_was_announced(verbs: NotedVerbs) -> None:
    async def once() -> AsyncIterator[bytes]:
        yield b" " * (MIB + 1)

    async with in_process(service(verbs, body_limit=MIB)) as client:
        problem(await client.post("/scheduler/filter", content=once()), 413)
    assert verbs.calls == []


async def test_a_hundred_megabytes_are_read_where_the_limit_allows(verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body()).encode().ljust(100_000_000)
    async with in_process(service(verbs)) as client:
        answer = await client.post("/scheduler/filter", content=body)
    assert answer.json()["NodeNames"] == ["n1", "n2"]


async def test_a_hundred_megabytes_are_refused_where_the_limit_is_less(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    problem(await client.post("/scheduler/filter", content=b" " * 100_000_000), 413)
    assert verbs.calls == []


async def test_a_body_shorter_than_announced_is_refused(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body()).encode()
    headers = {"content-length": str(len(body) + 5)}
    told = problem(await client.post("/scheduler/filter", content=body, headers=headers), 400)
    assert f"ends after {len(body)} of the {len(body) + 5} announced bytes" in told["detail"]
    assert verbs.calls == []


# -- pods that are JSON and yet cannot be


@pytest.mark.parametrize("quantity", ["-1", "-500m", "much", "", "1.5.2", "0x10", "9" * 80])
async def test_a_quantity_that_cannot_be_counted_rejects_the_pod_everywhere_with_a_constant_reason(
    client: httpx.AsyncClient, verbs: NotedVerbs, quantity: str
) -> None:
    body = filter_body(asking({"cpu": quantity}))
    first = (await client.post("/scheduler/filter", json=body)).raise_for_status().json()
    second = (await client.post("/scheduler/filter", json=body)).raise_for_status().json()
    assert first == second
    assert first["NodeNames"] == []
    assert first["Error"] == ""
    assert first["FailedNodes"] == {}
    # Preemption would evict others in vain.
    assert set(first["FailedAndUnresolvableNodes"]) == {"n1", "n2"}
    reason = first["FailedAndUnresolvableNodes"]["n1"]
    assert reason.startswith("the pod is invalid: ")
    assert "cpu" in reason
    assert verbs.calls == []


async def test_a_pod_that_cannot_be_read_gets_no_scores_and_no_victims(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    pod = asking({"cpu": "-1"})
    assert (await client.post("/scheduler/prioritize", json=filter_body(pod))).json() == []
    victims = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    assert (await client.post("/scheduler/preempt", json=body)).json() == {"NodeNameToMetaVictims": {}}
    assert verbs.calls == []


@pytest.mark.parametrize(
    ("resource", "quantity", "units"),
    [
        ("cpu", "1e3", 1_000_000),
        ("cpu", "0.5", 500),
        ("escher.dev/team-a.data1", "1e3", 1000),
        ("memory", "1Ei", 2**60),
        ("memory", "0.5", 1),
        ("memory", "100Ei", 2**63 - 1),
    ],
)
async def test_every_spelling_of_a_quantity_is_counted_as_kubernetes_does(
    client: httpx.AsyncClient, verbs: NotedVerbs, resource: str, quantity: str, units: int
) -> None:
    await client.post("/scheduler/filter", json=filter_body(asking({resource: quantity})))
    assert verbs.calls[0][1].requests[resource] == units


async def test_a_pod_with_a_thousand_resources_is_understood(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    pod = asking({f"escher.dev/team-a.r{number}": "1" for number in range(1000)})
    answer = await client.post("/scheduler/filter", json=filter_body(pod))
    assert answer.json()["NodeNames"] == ["n1", "n2"]
    assert len(verbs.calls[0][1].requests) == 1001


async def test_unknown_node_names_are_handed_on_for_the_ledger_to_judge(
    client: httpx.AsyncClient, verbs: NotedVerbs
) -> None:
    names = ["nowhere", "", "UPPER case", "x" * 10_000, "n1"]
    answer = await client.post("/scheduler/filter", json=filter_body(names=names))
    assert answer.status_code == 200
    assert verbs.calls[0][2] == names


@pytest.mark.parametrize(
    ("labels", "annotations", "key"),
    [
        ({"escher.dev/gang": "train"}, {"escher.dev/gang-min-member": "many"}, "escher.dev/gang-min-member"),
        ({"escher.dev/gang": "train"}, {"escher.dev/gang-min-member": "-1"}, "escher.dev/gang-min-member"),
        ({"escher.dev/gang": "train"}, {}, "escher.dev/gang-min-member"),
        ({"escher.dev/gang": "x" * 200}, {"escher.dev/gang-min-member": "2"}, "escher.dev/gang"),
        ({}, {"escher.dev/gang-min-member": "2"}, "escher.dev/gang-min-member"),
        (
            {"escher.dev/gang": "train"},
            {"escher.dev/gang-min-member": "2", "escher.dev/gang-timeout-seconds": "90"},
            "escher.dev/gang-timeout-seconds",
        ),
    ],
)
async def test_malformed_annotations_reach_the_application_as_such(
    client: httpx.AsyncClient, verbs: NotedVerbs, labels: dict[str, str], annotations: dict[str, str], key: str
) -> None:
    pod = asking({"cpu": "1"}, labels=labels, annotations=annotations)
    answer = await client.post("/scheduler/filter", json=filter_body(pod))
    assert answer.status_code == 200
    assert verbs.calls[0][1].gang.field == key
