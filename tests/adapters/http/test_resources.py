"""set_resource and its relatives over HTTP: what is understood, what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.adapters.http.models.answers import timestamp
from extender.app.contracts.api import ResourceState, SetResource
from extender.app.contracts.errors import BeingDeleted, Invalid, VersionConflict
from extender.app.contracts.ports import NodeChoice, PodOwner
from extender.core.names import EphemeralName
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid
from tests.adapters.http.fakes import NotedManagement, Ready
from tests.adapters.http.told import problem

pytestmark = pytest.mark.anyio
DATA1 = "/v1/namespaces/team-a/resources/data1"


def stored(name: str, namespace: str = "team-a", **more: Any) -> tuple[EphemeralName, ResourceState]:
    key = EphemeralName(namespace, name)
    return key, ResourceState(name=key, key=key.key(), nodes={NodeName("n1"): 4}, version="12", **more)


# -- what is understood


async def test_a_resource_is_set_on_a_node(client: httpx.AsyncClient, management: NotedManagement) -> None:
    body = {"capacity": 4, "node_spec": "node-3", "ttl_seconds": 600, "owner": {"name": "p", "uid": "u"}}
    answer = await client.put(DATA1, json=body)
    assert answer.status_code == 200
    assert answer.json() == {
        "namespace": "team-a",
        "name": "data1",
        "shared": False,
        "key": "escher.dev/team-a.data1",
        "nodes": {"node-3": 4},
        "version": "7",
        "owner": {"name": "p", "uid": "u"},
        "expires_at": None,
        "problem": "",
        "finalizers": [],
        "export_to": [],
    }
    assert answer.headers["etag"] == '"7"'
    assert management.asked == [
        SetResource(
            name=EphemeralName("team-a", "data1"),
            capacity=4,
            choice=NodeChoice(node=NodeName("node-3")),
            ttl_seconds=600,
            owner=PodOwner("p", PodUid("u")),
        )
    ]


@pytest.mark.parametrize(
    ("spec", "choice"),
    [
        ("node-3", NodeChoice(node=NodeName("node-3"))),
        ("ip-10-0-0-1.ec2.internal", NodeChoice(node=NodeName("ip-10-0-0-1.ec2.internal"))),
        ({}, NodeChoice(available={})),
        ({"nvidia.com/gpu": 2}, NodeChoice(available={"nvidia.com/gpu": 2})),  # type: ignore[dict-item]
        ({"cpu": 0.5}, NodeChoice(available={"cpu": 500})),  # type: ignore[dict-item]
        ({"cpu": 2, "memory": "1Gi"}, NodeChoice(available={"cpu": 2000, "memory": 2**30})),  # type: ignore[dict-item]
        ({"escher.dev/x": "1e3"}, NodeChoice(available={"escher.dev/x": 1000})),  # type: ignore[dict-item]
        ({"escher.dev/x": 1e3}, NodeChoice(available={"escher.dev/x": 1000})),  # type: ignore[dict-item]
        ({"memory": "1Ei"}, NodeChoice(available={"memory": 2**60})),  # type: ignore[dict-item]
        ({"cpu": "0.5"}, NodeChoice(available={"cpu": 500})),  # type: ignore[dict-item]
        ({"labels": 2}, NodeChoice(available={"labels": 2})),  # type: ignore[dict-item]
        ({"labels": {"zone": "a"}}, NodeChoice(labels={"zone": "a"})),
        ({"labels": {}}, NodeChoice(labels={})),
    ],
)
async def test_every_form_of_node_spec_is_understood(
    client: httpx.AsyncClient, management: NotedManagement, spec: Any, choice: NodeChoice
) -> None:
    answer = await client.put(DATA1, json={"capacity": 1, "node_spec": spec})
    assert answer.status_code == 200, answer.text
    assert management.asked[0].choice == choice


async def test_num_nodes_limits_the_choice(client: httpx.AsyncClient, management: NotedManagement) -> None:
    await client.put(DATA1, json={"capacity": 1, "node_spec": {}, "num_nodes": 3})
    assert management.asked[0].choice == NodeChoice(available={}, limit=3)


async def test_without_node_spec_the_callers_own_node_comes_from_the_header_or_the_owner(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    await client.put(DATA1, json={"capacity": 1}, headers={"Escher-Node": "node-9"})
    await client.put(DATA1, json={"capacity": 1, "node_spec": None, "owner": {"name": "p", "uid": "u"}})
    assert management.asked[0].choice is None
    assert management.asked[0].caller_node == "node-9"
    assert management.asked[1].choice is None
    assert management.asked[1].owner == PodOwner("p", PodUid("u"))


async def test_where_nothing_tells_the_callers_own_node_the_answer_says_what_to_do(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    told = problem(await client.put(DATA1, json={"capacity": 1}), 422, "node_spec")
    assert "set node_spec" in told["detail"]
    assert "Escher-Node" in told["detail"]
    told = problem(await client.put(DATA1, json={"capacity": 1}, headers={"Escher-Node": "N 9"}), 422, "Escher-Node")
    assert "'N 9' is not a node's name" in told["detail"]
    assert management.asked == []


async def test_capacity_0_answers_that_it_is_gone(client: httpx.AsyncClient) -> None:
    answer = await client.put(DATA1, json={"capacity": 0, "node_spec": "n1"})
    assert answer.json()["nodes"] == {}
    assert "etag" not in answer.headers


async def test_a_shared_resource_shows_no_namespace(client: httpx.AsyncClient, management: NotedManagement) -> None:
    answer = await client.put(DATA1, json={"capacity": 1, "node_spec": "n1", "shared": True})
    assert answer.json()["key"] == "escher.dev/data1"
    assert management.asked[0].name.shared


async def test_exports_reach_the_application_and_what_is_no_namespace_is_refused(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    body = {"capacity": 1, "node_spec": "n1"}
    assert (await client.put(DATA1, json={**body, "export_to": ["team-b", "team-b"]})).status_code == 200
    assert management.asked[-1].exports == ("team-b",)
    assert (await client.put(DATA1, json=body)).status_code == 200
    assert management.asked[-1].exports is None
    refused = await client.put(DATA1, json={**body, "export_to": ["Team B"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "export_to")
    assert (await client.put(DATA1, json={**body, "export_to": ["a"] * 65})).status_code == 422


async def test_if_match_and_dry_run_reach_the_application(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    body = {"capacity": 1, "node_spec": "n1"}
    await client.put(DATA1 + "?dryRun=All", json=body, headers={"If-Match": '"12"'})
    await client.delete(DATA1 + "?dryRun=All", headers={"If-Match": "12"})
    await client.delete(DATA1)
    assert (management.asked[0].if_version, management.asked[0].dry_run) == ("12", True)
    assert management.asked[1] == (EphemeralName("team-a", "data1"), "12", True)
    assert management.asked[2] == (EphemeralName("team-a", "data1"), None, False)


async def test_delete_answers_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.delete(DATA1)
    assert (answer.status_code, answer.content) == (204, b"")


async def test_delete_tells_what_finalizers_hold(client: httpx.AsyncClient, management: NotedManagement) -> None:
    management.left = dict([stored("data1", problem="it is held", finalizers=["x.io/keep"])])
    answer = await client.delete(DATA1)
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["finalizers"], answer.json()["problem"]) == (["x.io/keep"], "it is held")


@pytest.mark.parametrize("field", ["name", "namespace"])
async def test_what_is_being_deleted_is_a_conflict_that_names_the_field(
    client: httpx.AsyncClient, management: NotedManagement, field: str
) -> None:
    management.fail = BeingDeleted(field, "team-a", "it is held by x.io/keep")
    told = problem(await client.put(DATA1, json={"capacity": 1, "node_spec": "n1"}), 409, field)
    assert (told["type"], told["detail"]) == ("urn:escher:problem:being-deleted", "it is held by x.io/keep")


async def test_a_resource_is_shown_with_its_version_and_end(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.resources = dict([stored("data1", expires_at=0.5, problem="odd")])
    answer = await client.get(DATA1)
    assert answer.json()["expires_at"] == "1970-01-01T00:00:00.500000Z"
    assert answer.json()["problem"] == "odd"
    assert answer.headers["etag"] == '"12"'


async def test_a_list_comes_in_pages_that_nothing_falls_out_of(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    management.resources = dict(stored(f"r{number}") for number in (3, 1, 2, 5, 4))
    path = "/v1/namespaces/team-a/resources"
    first = (await client.get(path, params={"limit": 2})).json()
    assert [item["name"] for item in first["items"]] == ["r1", "r2"]
    # What was the last of a page may be gone, and others come, before the next is asked for.
    del management.resources[EphemeralName("team-a", "r2")]
    second = (await client.get(path, params={"limit": 2, "continue": first["continue"]})).json()
    assert [item["name"] for item in second["items"]] == ["r3", "r4"]
    third = (await client.get(path, params={"limit": 2, "continue": second["continue"]})).json()
    assert [item["name"] for item in third["items"]] == ["r5"]
    assert third["continue"] is None


# -- what is refused


@pytest.mark.parametrize("capacity", [-1, 1.5, "4", True, None, [], 1e3, 2**63 // 1000 + 1, 2**63, 10**400])
async def test_a_capacity_that_is_no_whole_number_from_0_is_refused_with_its_value(
    client: httpx.AsyncClient, management: NotedManagement, capacity: Any
) -> None:
    told = problem(await client.put(DATA1, json={"capacity": capacity, "node_spec": "n1"}), 422, "capacity")
    assert told["detail"].startswith("capacity: ")
    assert repr(capacity)[:40] in told["detail"]
    assert management.asked == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "capacity"),
        ({"node_spec": "n1"}, "capacity"),
        ({"capactiy": 4, "capacity": 4, "node_spec": "n1"}, "capactiy"),
        ({"capacity": 4, "node_spec": 7}, "node_spec"),
        ({"capacity": 4, "node_spec": True}, "node_spec"),
        ({"capacity": 4, "node_spec": ["n1"]}, "node_spec"),
        ({"capacity": 4, "node_spec": ""}, "node_spec"),
        ({"capacity": 4, "node_spec": "N1"}, "node_spec"),
        ({"capacity": 4, "node_spec": "n" * 254}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": -1}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": 0.5}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": "0.5"}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": "many"}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": True}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": None}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"nvidia.com/gpu": {"count": 2}}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"cpu": 1e300}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"no name": 1}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"": 1}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"x" * 400: 1}}, "node_spec"),
        ({"capacity": 4, "node_spec": {f"escher.dev/r{n}": 1 for n in range(1025)}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"labels": {"zone": 1}}}, "node_spec"),
        ({"capacity": 4, "node_spec": {"labels": {"zone": "a"}, "cpu": 1}}, "node_spec"),
        ({"capacity": 4, "node_spec": "n1", "num_nodes": 0}, "num_nodes"),
        ({"capacity": 4, "node_spec": "n1", "num_nodes": 1.5}, "num_nodes"),
        ({"capacity": 4, "node_spec": "n1", "ttl_seconds": 0}, "ttl_seconds"),
        ({"capacity": 4, "node_spec": "n1", "ttl_seconds": -5}, "ttl_seconds"),
        ({"capacity": 4, "node_spec": "n1", "ttl_seconds": "60"}, "ttl_seconds"),
        ({"capacity": 4, "node_spec": "n1", "ttl_seconds": True}, "ttl_seconds"),
        ({"capacity": 4, "node_spec": "n1", "ttl_seconds": 1e12}, "ttl_seconds"),
        ({"capacity": 4, "node_spec": "n1", "owner": {"name": "p"}}, "owner.uid"),
        ({"capacity": 4, "node_spec": "n1", "owner": {"name": "", "uid": "u"}}, "owner.name"),
        ({"capacity": 4, "node_spec": "n1", "owner": "p"}, "owner"),
        ({"capacity": 4, "node_spec": "n1", "shared": "yes"}, "shared"),
        ([], "body"),
        ("text", "body"),
    ],
)
async def test_a_body_with_a_wrong_value_is_refused_and_its_field_named(
    client: httpx.AsyncClient, management: NotedManagement, body: Any, field: str
) -> None:
    told = problem(await client.put(DATA1, json=body), 422, field)
    assert told["title"] == "A value is invalid"
    assert told["errors"][0] == {"field": field, "detail": told["detail"]}
    assert "Value error" not in told["detail"]
    assert len(told["detail"]) < 500
    assert management.asked == []


async def test_a_thousand_resources_are_understood_and_more_than_1024_refused_with_the_numbers(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    spec = {f"escher.dev/r{number}": 1 for number in range(1000)}
    assert (await client.put(DATA1, json={"capacity": 1, "node_spec": spec})).status_code == 200
    assert len(management.asked[0].choice.available) == 1000
    spec |= {f"escher.dev/s{number}": 1 for number in range(1000)}
    told = problem(await client.put(DATA1, json={"capacity": 1, "node_spec": spec}), 422, "node_spec")
    assert "2000 resources; the limit is 1024" in told["detail"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["capacity", "ttl_seconds", "node_spec"])
async def test_numbers_that_json_does_not_have_are_refused(
    client: httpx.AsyncClient, management: NotedManagement, field: str, text: str
) -> None:
    values = {"capacity": "1", "ttl_seconds": "1", "node_spec": '"n1"'} | {
        field: f'{{"cpu": {text}}}' if field == "node_spec" else text
    }
    body = "{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}"
    answer = await client.put(DATA1, content=body, headers={"content-type": "application/json"})
    problem(answer, 422, field)
    assert management.asked == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"not JSON", b"\xff", b"[" * 100_000, b'{"capacity": ' + b"9" * 5000 + b"}"]
)
async def test_a_body_that_is_not_json_is_refused(
    client: httpx.AsyncClient, management: NotedManagement, body: bytes
) -> None:
    answer = await client.put(DATA1, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    told = answer.json()
    assert told["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert management.asked == []


async def test_a_body_that_does_not_say_it_is_json_is_refused(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    answer = await client.put(DATA1, content=b'{"capacity":1,"node_spec":"n1"}', headers={"content-type": "text/plain"})
    problem(answer, 422)
    assert management.asked == []


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
@pytest.mark.parametrize(
    ("namespace", "name", "field", "said"),
    [
        ("team-a", "Data1", "name", "not a DNS label"),
        ("team-a", "data.1", "name", "not a DNS label"),
        ("team-a", "-data", "name", "not a DNS label"),
        ("team-a", "x" * 64, "name", "has 64 characters; the limit is 63"),
        ("team-a", "x" * 60, "name", "has 67 characters; the limit for the part after '/' is 63"),
        ("Team", "data1", "namespace", "not a DNS label"),
        ("t" * 64, "data1", "namespace", "has 64 characters; the limit is 63"),
        ("team-a", "nvidia.com%2Fgpu", "name", "only ephemeral resources"),
        ("team-a", "escher.dev%2Fteam-b.data1", "name", "Give the name alone"),
        ("team-a", "nvidia.com/gpu", "name", "only ephemeral resources"),
    ],
)
async def test_a_name_that_cannot_be_is_refused_with_the_limit_and_the_length(
    client: httpx.AsyncClient,
    management: NotedManagement,
    method: str,
    namespace: str,
    name: str,
    field: str,
    said: str,
) -> None:
    body = {"json": {"capacity": 1, "node_spec": "n1"}} if method == "PUT" else {}
    answer = await client.request(method, f"/v1/namespaces/{namespace}/resources/{name}", **body)  # type: ignore[arg-type]
    assert said in problem(answer, 422, field)["detail"]
    assert management.asked == []


async def test_resources_outside_the_domain_can_never_be_set(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    for name in ("cpu", "memory", "pods"):
        answer = await client.put(f"/v1/namespaces/x/resources/{name}", json={"capacity": 1, "node_spec": "n1"})
        assert answer.json()["key"] == f"escher.dev/x.{name}"
    assert {asked.name.key() for asked in management.asked} == {
        "escher.dev/x.cpu",
        "escher.dev/x.memory",
        "escher.dev/x.pods",
    }


async def test_if_none_match_takes_a_star(client: httpx.AsyncClient, management: NotedManagement) -> None:
    body = {"capacity": 1, "node_spec": "n1"}
    problem(await client.put(DATA1, json=body, headers={"If-None-Match": '"7"'}), 422, "If-None-Match")
    for headers, absent in (({"If-None-Match": "*"}, True), ({}, False)):
        await client.put(DATA1, json=body, headers=headers)
        assert management.asked.pop().if_absent is absent
    assert management.asked == []


@pytest.mark.parametrize("value", ["*", '""', '"1", "2"', ""])
async def test_if_match_takes_one_version(client: httpx.AsyncClient, management: NotedManagement, value: str) -> None:
    problem(await client.delete(DATA1, headers={"If-Match": value}), 422, "If-Match")
    assert management.asked == []


@pytest.mark.parametrize(
    ("query", "field"), [("dryRun=true", "dryRun"), ("dryRun=", "dryRun"), ("shared=perhaps", "shared")]
)
async def test_a_wrong_query_is_refused(
    client: httpx.AsyncClient, management: NotedManagement, query: str, field: str
) -> None:
    problem(await client.delete(f"{DATA1}?{query}"), 422, field)
    assert management.asked == []


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=5001", "limit"), ("limit=x", "limit"), ("continue=!!", "continue")],
)
async def test_a_page_that_cannot_be_is_refused(client: httpx.AsyncClient, query: str, field: str) -> None:
    problem(await client.get(f"/v1/namespaces/team-a/resources?{query}"), 422, field)


# -- errors of the application


async def test_errors_of_the_application_keep_their_field_and_get_their_status(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    body = {"capacity": 1, "node_spec": "n9"}
    management.fail = Invalid("node_spec", "n9", "there is no node n9")
    told = problem(await client.put(DATA1, json=body), 422, "node_spec")
    assert told["detail"] == "there is no node n9"
    management.fail = VersionConflict("If-Match", "12", "it is at version 13 now")
    told = problem(await client.put(DATA1, json=body, headers={"If-Match": "12"}), 412, "If-Match")
    assert told["title"] == "Not at the expected version"
    management.fail = None
    told = problem(await client.get(DATA1), 404, "name")
    assert told["detail"] == "there is no resource team-a/data1"


@pytest.mark.parametrize(("after", "seconds"), [(None, "1"), (0.2, "1"), (7.1, "8")])
async def test_an_api_server_that_cannot_be_reached_is_503_with_a_time_to_try_again(
    client: httpx.AsyncClient, management: NotedManagement, after: float | None, seconds: str
) -> None:
    management.fail = Unavailable("the API server does not answer", after)
    answer = await client.put(DATA1, json={"capacity": 1, "node_spec": "n1"})
    told = problem(answer, 503)
    assert told["detail"] == "the API server does not answer"
    assert answer.headers["retry-after"] == seconds


async def test_before_the_first_full_sync_the_api_says_so(
    client: httpx.AsyncClient, management: NotedManagement, ready: Ready
) -> None:
    ready.now = False
    told = problem(await client.put(DATA1, json={"capacity": 1, "node_spec": "n1"}), 503)
    assert told["type"] == "urn:escher:problem:not-ready"
    assert management.asked == []


@pytest.mark.parametrize(("moment", "shown"), [(1e300, "9999-12-31T23:59:59Z"), (-1e300, "0001-01-01T00:00:00Z")])
def test_no_moment_can_make_a_list_fail(moment: float, shown: str) -> None:
    found = timestamp(moment)
    assert found is not None
    assert found.isoformat().replace("+00:00", "Z") == shown
