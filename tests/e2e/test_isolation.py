"""Quotas and scheduling domains on whole clusters, as the settings file sets and changes them: what is refused, what
waits and comes, and what of it people are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from loadtests.shared.pods import EXTENDER, Json
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import fresh_arena, shared_field
from tests.e2e.workload import DOMAIN, POOL, Arena, Field, stays

pytestmark = [pytest.mark.timeout(300)]
Allow = Callable[..., None]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "escher.yaml"
    file.write_text("isolation: {}\n")
    return file


@pytest.fixture(scope="module")
def field(state_folder: Path, where: str, settings: Path) -> Iterator[Field]:
    yield from shared_field(where, nodes=1, service_arguments=("--config", str(settings)))


@pytest.fixture
def arena(field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(field, request.node.name)


@pytest.fixture
def allow(arena: Arena, settings: Path) -> Allow:
    """What the test's namespace may have and touch from now on."""

    def write(**allowance: object) -> None:
        settings.write_text(f"isolation: {json.dumps({'namespaces': {arena.namespace: allowance}})}\n")
        defaults = {"resources": 500, "policies": 200, "waiting_kinds": 1_000}
        limits = defaults | {name: limit for name, limit in allowance.items() if isinstance(limit, int)}
        counted = ("resources", "units", "policies", "gang_places", "claims", "waiting_kinds")
        wanted = {name: limits.get(name) for name in counted}
        nodes = allowance.get("nodes")
        eventually(
            lambda: (
                {name: quota(arena)[name]["limit"] for name in wanted} == wanted
                and (quota(arena)["domain"]["nodes"] is None) is (nodes is None)
            ),
            what="the service knowing its settings",
        )

    return write


def quota(arena: Arena) -> Json:
    return arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/quota")


def objects(arena: Arena, kind: str) -> str:
    return f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/{kind}"


def ready(arena: Arena, kind: str, name: str) -> tuple[str, str] | None:
    """Status and reason of its Ready condition."""
    conditions = arena.api.get(f"{objects(arena, kind)}/{name}").get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Ready"), None)


def test_a_namespace_has_as_much_as_it_may_and_what_kubectl_wrote_waits(arena: Arena, allow: Allow) -> None:
    [node] = arena.nodes(1)
    allow(resources=1, units=4)
    arena.set_resource("data1", 4, node)
    body = {"capacity": 1, "node_spec": node}
    refused = arena.service.call("PUT", arena.resource_path("data2"), body, expect=403)
    assert (refused["type"], refused["field"]) == ("urn:escher:problem:quota-exceeded", "name")
    assert refused["quota"] == {"of": "resources", "requested": 1, "used": 1, "limit": 1}
    made = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "data2"}}
    arena.api.post(objects(arena, "ephemeralresources"), {**made, "spec": {"nodes": {node: 2}}})
    eventually(lambda: ready(arena, "ephemeralresources", "data2") == ("False", "QuotaExceeded"), what="the condition")
    key = f"{DOMAIN}/{arena.namespace}.data2"
    assert stays(lambda: arena.says(node, key)) == (None, None)
    assert quota(arena)["resources"] == {"used": 1, "limit": 1, "waiting": 1}
    arena.set_resource("data1", 0, node)
    eventually(lambda: arena.says(node, key) == ("2", "2"), what="what waited")
    eventually(lambda: ready(arena, "ephemeralresources", "data2") == ("True", "Set"), what="the condition")


def test_gangs_and_policies_wait_until_there_are_places_for_them(arena: Arena, allow: Allow) -> None:
    arena.nodes(4)
    allow(gang_places=3, policies=1)
    first = arena.create(*arena.gang("first", 3, EXTENDER))
    arena.until_bound(first)
    second = arena.create(*arena.gang("second", 2, EXTENDER))
    arena.until_rejected(second)
    assert stays(lambda: arena.bound(second)) == {}
    told = arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/gangs/second/explain")
    assert "requested: gang_places=2, used: gang_places=3, limited: gang_places=3" in told["summary"]
    for name in ("one", "two"):
        kind = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}}
        arena.api.post(objects(arena, "escherpolicies"), {**kind, "spec": {"type": "balance"}})
        eventually(partial(ready, arena, "escherpolicies", name), what="the condition")
    assert ready(arena, "escherpolicies", "two") == ("False", "QuotaExceeded")
    allow(gang_places=5, policies=2)
    arena.until_bound(second)
    eventually(lambda: ready(arena, "escherpolicies", "two") == ("True", "InForce"), what="the second policy")
    assert (quota(arena)["gang_places"]["used"], quota(arena)["policies"]["used"]) == (5, 2)


def test_a_namespace_touches_no_node_outside_of_its_domain(arena: Arena, allow: Allow) -> None:
    mine = arena.nodes(2)
    allow(nodes={POOL: arena.namespace}, names=["data*"])
    assert quota(arena)["domain"]["node_count"] == 2
    others = next(name for name in arena.service.cluster_state() if name not in mine)
    body = {"capacity": 1, "node_spec": others}
    refused = arena.service.call("PUT", arena.resource_path("data1"), body, expect=403)
    assert (refused["type"], refused["field"]) == ("urn:escher:problem:outside-domain", "node_spec")
    assert set(arena.set_resource("data1", 1, {})["nodes"]) == set(mine)
    refused = arena.service.call("PUT", arena.resource_path("secret"), {"capacity": 1, "node_spec": {}}, expect=403)
    assert refused["field"] == "name"
    # One that leaves it keeps what it has, and gets nothing new.
    arena.api.patch(f"/api/v1/nodes/{mine[0]}", {"metadata": {"labels": {POOL: "elsewhere"}}})
    eventually(lambda: quota(arena)["domain"]["node_count"] == 1, what="the service seeing the label")
    assert arena.says(mine[0], f"{DOMAIN}/{arena.namespace}.data1") == ("1", "1")
    arena.service.call("PUT", arena.resource_path("data2"), {"capacity": 1, "node_spec": mine[0]}, expect=403)
