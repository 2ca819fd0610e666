"""One odd object breaks nothing: neither lists, tables and watches, nor controllers and schedulers.

No request brings such objects in; a store that is restored, or written by a test, may hold them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kubesim.apiserver.representation.nesting import DEEPEST, fault_of, fault_of_json
from kubesim.kinds import DISRUPTION_BUDGET, JOB, NODE, POD, Json, Kind
from lab.simulation import Simulation
from tests.kubesim.apiserver.apis import JSON, JSON_PATCH, MERGE, NODES, PODS, STRATEGIC, Api, pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
YAML = "application/yaml"


def odd(name: str, kind: Kind, **fields: Any) -> Json:
    metadata = {"name": name, "uid": name} | ({"namespace": "default"} if kind.namespaced else {})
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata, **fields}


ODDITIES: list[tuple[Kind, Json]] = [
    (POD, odd("no-spec", POD)),
    (POD, odd("texts", POD, spec="none", status="none")),
    (POD, odd("lists", POD, spec={"containers": [None], "nodeName": "n0"}, status={"conditions": ["Ready"]})),
    (POD, odd("labels", POD, spec={"containers": []}, status={"phase": 3, "conditions": [{}]})),
    (NODE, odd("odd-conditions", NODE, spec={}, status={"conditions": [{"status": "True"}, None]})),
    (NODE, odd("odd-amounts", NODE, spec={"taints": "all"}, status={"allocatable": {"cpu": "many"}})),
    (JOB, odd("odd-job", JOB, spec={"template": None})),
    (JOB, odd("odd-status", JOB, spec={"template": {"spec": {}}}, status={"conditions": [7]})),
    (DISRUPTION_BUDGET, odd("half", DISRUPTION_BUDGET, spec={"minAvailable": "half", "selector": {}}, status={})),
    (DISRUPTION_BUDGET, odd("is", DISRUPTION_BUDGET, spec={"selector": {"matchExpressions": [{"key": "a"}]}})),
    (DISRUPTION_BUDGET, odd("none", DISRUPTION_BUDGET, spec=None, status=None)),
]


async def test_lists_tables_and_watches_show_the_others() -> None:
    api = Api()
    api.ok("POST", PODS, pod("good"))
    api.ok("POST", NODES, {"metadata": {"name": "good"}})
    watch = api.watch(PODS)
    for kind, each in ODDITIES:
        api.store.create(kind, each)
    for path in {kind.path("default" if kind.namespaced else "") for kind, _ in ODDITIES}:
        listed = [each["metadata"]["name"] for each in api.get(path)["items"]]
        rows = api.ok("GET", path, accept=TABLE)["rows"]
        assert [row["cells"][0] for row in rows] == listed
    seen = [json.loads(line)["object"]["metadata"]["name"] async for line in _first(watch, 5)]
    assert seen == ["good", "no-spec", "texts", "lists", "labels"]
    watch.close()


async def _first(watch: Any, number: int) -> Any:
    async for line in watch.lines():
        yield line
        number -= 1
        if not number:
            return


async def test_selectors_find_the_others() -> None:
    api = Api()
    api.ok("POST", PODS, pod("good", labels={"app": "a"}))
    for kind, each in ODDITIES:
        api.store.create(kind, each)
    assert api.names(f"{PODS}?labelSelector=app%3Da") == ["good"]
    assert api.names(f"{PODS}?fieldSelector=metadata.name%3Dgood") == ["good"]


async def test_a_cluster_with_odd_objects_goes_on_working() -> None:
    async with Simulation(nodes=2) as simulation:
        store = simulation.cluster.api.store
        for kind, each in ODDITIES:
            store.create(kind, each)
        await asyncio.sleep(1)
        good: Json = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        await simulation.create({"metadata": {"name": "good"}, "spec": good}, DISRUPTION_BUDGET)
        for scheduler in ("escher", "escher-resources"):
            body = pod(f"after-{scheduler}", labels={"app": "a"}, schedulerName=scheduler)
            await simulation.create({"metadata": body["metadata"], "spec": body["spec"]}, POD)
        template = {"spec": {**pod()["spec"], "restartPolicy": "Never", "schedulerName": "escher-resources"}}
        await simulation.create({"metadata": {"name": "after"}, "spec": {"template": template}}, JOB)

        def running() -> int:
            return sum((each.get("status") or {}) != "none" and _phase(each) == "Running" for each in store.list(POD))

        await until(lambda: running() == 3, what="all pods running")
        budget = store.get(DISRUPTION_BUDGET, "default", "good")
        assert budget is not None
        await until(lambda: _allowed(simulation) == 1, what="the budget being counted")


def _phase(each: Json) -> object:
    status = each.get("status")
    return status.get("phase") if isinstance(status, dict) else None


def _allowed(simulation: Simulation) -> int:
    budget = simulation.cluster.api.store.get(DISRUPTION_BUDGET, "default", "good")
    assert budget is not None
    return int(budget["status"]["disruptionsAllowed"])


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


def bodies(depth: int) -> Iterator[tuple[str, str, str, str]]:
    """Method, path, media type and body, nested so deep in one place or another."""
    inner = nested(depth - 1)
    yield "POST", PODS, JSON, inner
    yield "POST", PODS, YAML, inner
    yield "POST", PODS, JSON, '{"metadata":{"annotations":' + nested(depth - 3) + "}}"
    yield "POST", "/api/v1/namespaces", JSON, '{"metadata":{"name":"a"},"spec":' + nested(depth - 2) + "}"
    yield "PATCH", f"{PODS}/p", MERGE, nested(depth)
    yield "PATCH", f"{PODS}/p", STRATEGIC, nested(depth)
    yield "PATCH", f"{PODS}/p", JSON_PATCH, "[" + nested(depth - 1) + "]"
    yield "PATCH", f"{PODS}/p?fieldManager=me", "application/apply-patch+yaml", nested(depth)
    schema = nested((depth - 8) // 2, '{"type":"object","properties":{"a":', "}}").replace("1", '{"type":"string"}')
    names = '"names":{"plural":"deeps","kind":"Deep"},"group":"deep.dev","scope":"Namespaced"'
    version = '{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":' + schema + "}}"
    definition = '{"metadata":{"name":"deeps.deep.dev"},"spec":{' + names + ',"versions":[' + version + "]}}"
    yield "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, definition


@pytest.mark.parametrize("depth", [DEEPEST // 2, DEEPEST - 1, DEEPEST, DEEPEST + 8, 3000, 100_000])
async def test_nesting_never_runs_the_server_out_of_stack(depth: int) -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    for method, path, media, body in bodies(depth):
        status, answer = api.ask(method, path, body.encode(), media=media)
        assert status < 500, (method, path, media, answer)
        if depth > DEEPEST + 7:
            assert status == 400, (method, path, media, answer)
            assert "max depth" in answer["message"]
    api.get(PODS)


def test_depth_is_that_of_brackets_outside_of_texts() -> None:
    assert fault_of_json(b'{"a":"' + b"[" * 999 + b'\\"' + b"[" * 999 + b'"}') == ""
    assert fault_of_json(b"[]" * 5000) == ""
    assert fault_of_json(b"[" * DEEPEST + b"]" * DEEPEST) == ""
    assert fault_of_json(b"[" * (DEEPEST + 1)) == "invalid character '[' exceeded max depth"


async def test_aliases_do_not_multiply_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    status, answer = Api().ask("POST", PODS, "\n".join(lines).encode(), media=YAML)
    assert (status, "excessive aliasing" in answer["message"]) == (400, True)
    assert fault_of({"a": [1, 2, {"b": None}]}) == ""
