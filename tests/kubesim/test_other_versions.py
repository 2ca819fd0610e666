"""Objects of another version of Escher's kinds: what this one does not know of them it leaves as it is, and what it
does know is in force."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.kube.client.requests import JSON_PATCH
from extender.kube.names import NodeName
from kubesim.kinds import Json
from tests.app.town import Town

pytestmark = pytest.mark.anyio
ROOT = "/apis/escher.dev/v1alpha1/namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = "/spec/versions/0/schema/openAPIV3Schema"
FUTURE = {"mode": "new", "list": [1, 2]}
"""What a definition of a later version has, and its objects say. The API server keeps what its definition has."""


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


def _made(town: Town, plural: str, kind: str, name: str, spec: Json) -> None:
    """By somebody who has a later version's definition, and has applied it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    added = {"op": "add", "path": f"{SCHEMA}/properties/spec/properties/future", "value": anything}
    town.ask("PATCH", f"{DEFINITIONS}/{plural}.escher.dev", [added], content_type=JSON_PATCH)
    town.ask(
        "POST",
        f"{ROOT}/{plural}",
        {
            "apiVersion": "escher.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "annotations": {"example.com/future": "kept"}},
            "spec": {**spec, "future": FUTURE},
        },
    )


async def _put(town: Town, path: str, body: Any) -> None:
    assert town.simulation.service is not None
    transport = httpx.ASGITransport(town.simulation.service.http)
    async with httpx.AsyncClient(transport=transport, base_url="http://escher/v1/namespaces/default") as client:
        answer = await client.put(path, json=body)
    assert answer.status_code == 200, answer.text


def _ready(found: Json) -> str:
    [ready] = [each["status"] for each in found["status"]["conditions"] if each["type"] == "Ready"]
    return str(ready)


async def test_an_ephemeral_resource_keeps_what_this_version_does_not_know_and_is_in_force() -> None:
    async with Town() as town:
        _made(town, "ephemeralresources", "EphemeralResource", "r", {"nodes": {"n0": 2}})
        await town.pass_time(5)
        await _put(town, "resources/r", {"capacity": 3, "node_spec": "n1"})
        await town.pass_time(5)
        found = town.ask("GET", f"{ROOT}/ephemeralresources/r")
        assert found["spec"]["future"] == FUTURE
        assert found["metadata"]["annotations"]["example.com/future"] == "kept"
        assert found["spec"]["nodes"] == {"n0": 2, "n1": 3}
        assert _ready(found) == "True"
        assert town.scheduler.cache.ledger.rows[NodeName("n1")].ephemeral == {"escher.dev/default.r": 3}


async def test_a_policy_keeps_what_this_version_does_not_know_and_is_in_force() -> None:
    async with Town() as town:
        _made(town, "escherpolicies", "EscherPolicy", "apart", {"type": "anti-affinity"})
        await town.pass_time(5)
        assert _ready(town.ask("GET", f"{ROOT}/escherpolicies/apart")) == "True"
        await _put(town, "policies/apart", {"type": "balance", "parameters": {"tasks": 4}})
        await town.pass_time(5)
        found = town.ask("GET", f"{ROOT}/escherpolicies/apart")
        assert found["spec"]["future"] == FUTURE
        assert (found["spec"]["type"], _ready(found)) == ("balance", "True")
