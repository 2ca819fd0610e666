"""What the HTTP adapter itself costs: `pytest -m bench tests/adapters/http/test_speed.py`. Prints, asserts no time."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from extender.app.contracts.extender_api import Verdict
from extender.kube.names import NodeName
from tests.adapters.http.fakes import NotedVerbs, filter_body, on_loopback, pod_json, service

pytestmark = [pytest.mark.anyio, pytest.mark.bench]

ANSWERS: dict[str, Callable[[Sequence[NodeName]], Verdict]] = {
    "one passes": lambda nodes: Verdict(nodes[:1]),
    "all pass": lambda nodes: Verdict(nodes),
    "none passes": lambda nodes: Verdict((), dict.fromkeys(nodes, "gang does not fit now: it waits its turn")),
}


def names(count: int) -> list[NodeName]:
    return [NodeName(f"node-{number:05}") for number in range(count)]


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}", end="")  # noqa: T201


def whole_node(name: str) -> dict[str, Any]:
    """About 5.4 KB, as a kubelet's node is."""
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "labels": {f"label-{n}": "value" for n in range(15)},
            "annotations": {"a": "b" * 1500},
        },
        "spec": {},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "images": [{"names": ["a" * 80, "b" * 80], "sizeBytes": 1} for _ in range(18)],
        },
    }


async def microseconds(app: Any, body: bytes, times: int) -> float:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200

    headers = [(b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "path": "/scheduler/filter", "method": "POST", "headers": headers}
    seen = []
    for _ in range(times):
        began = time.perf_counter()
        await app(scope, receive, send)
        seen.append(time.perf_counter() - began)
    return statistics.median(seen) * 1e6


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("count", [1, 500, 5000])
async def test_filter_of_names(count: int, answer: str, verbs: NotedVerbs, capsys: pytest.CaptureFixture[str]) -> None:
    verbs.verdict = ANSWERS[answer](names(count))
    took = await microseconds(service(verbs), json.dumps(filter_body(names=names(count))).encode(), 200)
    say(capsys, f"filter, {count} names, {answer}: {took:.0f} us in process")


@pytest.mark.parametrize("count", [500, 5000])
async def test_filter_of_whole_nodes(count: int, verbs: NotedVerbs, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"items": [whole_node(name) for name in names(count)]}
    body = json.dumps({"Pod": pod_json(), "Nodes": nodes, "NodeNames": None}).encode()
    took = await microseconds(service(verbs), body, 10)
    say(capsys, f"filter, {count} whole nodes ({len(body) / 1e6:.1f} MB), all pass: {took:.0f} us in process")


@pytest.mark.parametrize("count", [1, 5000])
async def test_filter_over_loopback(count: int, verbs: NotedVerbs, capsys: pytest.CaptureFixture[str]) -> None:
    verbs.verdict = Verdict(names(1))
    body = json.dumps(filter_body(names=names(count))).encode()
    async with on_loopback(service(verbs)) as port, httpx.AsyncClient() as client:
        seen = []
        for _ in range(100):
            began = time.perf_counter()
            (await client.post(f"http://127.0.0.1:{port}/scheduler/filter", content=body)).raise_for_status()
            seen.append(time.perf_counter() - began)
    took = statistics.median(seen) * 1e6
    say(capsys, f"filter, {count} names, one passes: {took:.0f} us over loopback, client and server in one loop")
