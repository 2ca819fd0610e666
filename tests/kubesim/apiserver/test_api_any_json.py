"""Whatever is sent, the API server answers with a Status or an object, and never breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesim.kinds import Json
from kubesim.virtual_time import VirtualTimeLoop
from tests.kubesim.apiserver.apis import (
    EPHEMERALS,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    Api,
    binding,
    ephemeral,
    node,
    pod,
)

JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOB: Json = {"metadata": {"name": "x"}, "spec": {"template": {"spec": pod(restartPolicy="Never")["spec"]}}}
BODIES: dict[str, Json] = {
    PODS: pod("x", labels={"a": "b"}, asks={"cpu": "1"}, tolerations=[{"key": "a"}], schedulingGates=[{"name": "a"}]),
    NODES: node("x"),
    JOBS: JOB,
    EPHEMERALS: ephemeral("x", capacity=1, nodeSpec={"available": {"cpu": 1}}, owner={"name": "a", "uid": "b"}),
    EVENTS: {"metadata": {"name": "x"}, "regarding": {"namespace": "default"}, "series": {"count": 1}},
    BUDGETS: {"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}},
    DEFINITIONS: {
        "metadata": {"name": "b.a"},
        "spec": {
            "group": "a",
            "scope": "Cluster",
            "names": {"plural": "b", "kind": "B", "shortNames": ["bb"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"properties": {"a": {"items": {"enum": ["b"]}}}, "required": ["a"]}},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}],
                }
            ],
        },
    },
    f"{PODS}/p/binding": binding("p"),
    f"{PODS}/p/eviction": {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "0"}}},
}
_ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "a b",
    [],
    {},
    [None],
    [{}],
    [[]],
    {"": None},
    {"a": {}},
    "1e999",
]
ODD = st.sampled_from(_ODD)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a body, the body itself included."""
    found = [path]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in children:
        found += _places(each, (*path, key))
    return found


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = _with(value[path[0]], path[1:], new)
    return changed


def _run(work: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work())  # type: ignore[arg-type]


@pytest.mark.parametrize("path", BODIES)
@given(data=st.data())
def test_a_body_with_an_odd_value_anywhere_is_answered(path: str, data: st.DataObject) -> None:
    body = BODIES[path]
    changed = _with(body, data.draw(st.sampled_from(_places(body))), data.draw(ODD))

    async def work() -> None:
        api = Api()
        api.install_ephemerals()
        api.ok("POST", PODS, pod("p"))
        status, answer = api.ask("POST", path, json.dumps(changed).encode())
        assert answer["kind"]
        if status < 300:
            api.get("/apis")
            api.get(path.removesuffix("/p/binding").removesuffix("/p/eviction"))

    _run(work)


@pytest.mark.parametrize("path", [PODS, NODES, JOBS, EPHEMERALS])
@pytest.mark.parametrize("media", [MERGE, STRATEGIC, JSON_PATCH])
@given(data=st.data())
def test_a_patch_with_an_odd_value_anywhere_is_answered(path: str, media: str, data: st.DataObject) -> None:
    body = BODIES[path]
    place, odd = data.draw(st.sampled_from(_places(body))), data.draw(ODD)
    patch: Any = _with(body, place, odd)
    if media == JSON_PATCH:
        pointer = "".join(f"/{part}" for part in place)
        patch = [{"op": data.draw(st.sampled_from(["add", "replace", "test"])), "path": pointer, "value": odd}]
    target = data.draw(st.sampled_from(["", "/status"]))

    async def work() -> None:
        api = Api()
        api.install_ephemerals()
        api.ok("POST", path, body)
        _, answer = api.ask("PATCH", f"{path}/x{target}", patch, media=media)
        assert answer["kind"]
        api.get(path)

    _run(work)
