"""Whatever JSON arrives, anywhere: an answer that is well formed, and never an error of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.http.fakes import bind_body, filter_body, in_process, pod_json, service

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["n1", "cpu", "-1", "1e3", "0.5", "1Ei", "escher.dev/gang", "1" * 400, "x" * 300]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["cpu", "labels", "name", "uid", "items", "metadata"]) | st.text(max_size=6), inner
        )
    ),
    max_leaves=12,
)
RESOURCE = {"capacity": 1, "node_spec": {"cpu": 1}, "num_nodes": 1, "ttl_seconds": 1, "owner": {}, "shared": False}
OPERATION = {"op": "claim", "namespace": "a", "holder": "h", "node": "n", "units": {"cpu": 1}, "ttl_seconds": 1}
POLICY: dict[str, Any] = {
    "type": "balance",
    "parameters": {"tasks": 4, "max_skew": 1, "topology_key": "zone"},
    "selector": {
        "match_labels": {"app": "web"},
        "match_expressions": [{"key": "a", "operator": "In", "values": ["b"]}],
    },
}
TASK = {"name": "t", "group": "g", "needs": {"cpu": 1}, "node_labels": {"zone": "a"}}
METADATA = {"name": "p", "namespace": "n", "uid": "u", "labels": {}, "annotations": {}, "ownerReferences": []}
SPEC = {
    "containers": [],
    "initContainers": [],
    "nodeName": "",
    "priority": 0,
    "affinity": {},
    "tolerations": [],
    "overhead": {},
    "resources": {},
}


def one_changed(base: dict[str, Any]) -> st.SearchStrategy[Any]:
    """The body with one of its values replaced, or anything at all."""
    changed = st.tuples(st.sampled_from(sorted(base)), VALUES).map(lambda change: base | {change[0]: change[1]})
    return changed | VALUES


BODIES: st.SearchStrategy[tuple[str, str, Any]] = st.one_of(
    one_changed(filter_body()).map(lambda body: ("POST", "/scheduler/filter", body)),
    one_changed(METADATA).map(lambda m: ("POST", "/scheduler/filter", filter_body(pod_json(metadata=m)))),
    one_changed(SPEC).map(lambda s: ("POST", "/scheduler/prioritize", filter_body(pod_json(spec=s)))),
    VALUES.map(
        lambda node: ("POST", "/scheduler/filter", {"Pod": pod_json(), "Nodes": {"items": [node]}, "NodeNames": None})
    ),
    one_changed(bind_body()).map(lambda body: ("POST", "/scheduler/bind", body)),
    VALUES.map(
        lambda victims: (
            "POST",
            "/scheduler/preempt",
            {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims},
        )
    ),
    one_changed(RESOURCE).map(lambda body: ("PUT", "/v1/namespaces/team-a/resources/data1", body)),
    one_changed(POLICY).map(lambda body: ("PUT", "/v1/namespaces/team-a/policies/spread", body)),
    one_changed(POLICY["parameters"]).map(
        lambda said: ("POST", "/v1/namespaces/team-a/policies:validate", POLICY | {"parameters": said})
    ),
    one_changed(POLICY["selector"]).map(
        lambda said: ("PUT", "/v1/namespaces/team-a/policies/spread", POLICY | {"selector": said})
    ),
    one_changed(TASK).map(lambda task: ("POST", "/v1/namespaces/team-a/policies/slots:ask", {"task": task})),
    one_changed(OPERATION).map(lambda operation: ("POST", "/v1/transactions", {"operations": [operation]})),
    one_changed({"operations": [OPERATION], "read": {"n1": 1}, "mode": "incremental", "detection": "x"}).map(
        lambda body: ("POST", "/v1/transactions", body)
    ),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One for all: an event loop takes longer to make than most answers."""
    with asyncio.Runner() as made:
        yield made


@pytest.mark.timeout(300)
@settings(max_examples=6 * settings().max_examples)
@given(call=BODIES)
def test_any_json_is_answered_or_refused_in_form(runner: asyncio.Runner, call: tuple[str, str, Any]) -> None:
    method, path, body = call

    async def answered() -> httpx.Response:
        async with in_process(APP) as client:
            headers = {"content-type": "application/json"}
            return await client.request(method, path, content=json.dumps(body).encode(), headers=headers)

    answer = runner.run(answered())
    assert answer.status_code in (200, 400, 422), answer.text
    told = answer.json()
    if answer.status_code == 200:
        assert not (isinstance(told, dict) and "internal error" in told.get("Error", ""))
    else:
        assert answer.headers["content-type"] == "application/problem+json"
        assert told["detail"]
        assert len(answer.content) < 20_000


APP = service()
