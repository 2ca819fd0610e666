"""Rights: each call of the management API needs what the table says, in the namespace that it is about."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from extender.adapters.http.rights import NEEDS, GuardedRoute
from extender.app.admin.authorization import Right
from tests.adapters.http.fakes import NotedManagement, Ready, in_process
from tests.adapters.http.known import APP_A, Known, bearer, guarded

pytestmark = pytest.mark.anyio

RESOURCE = {"capacity": 1, "node_spec": "n1"}
POLICY = {"type": "anti-affinity", "parameters": {}, "selector": {"match_labels": {"app": "web"}}}
CLAIM = {"op": "claim", "holder": "h", "node": "n1", "units": {"cpu": 1}, "ttl_seconds": 5}
AT = "/v1/namespaces/team-a"

# Method, address, body, and each right in words.
CALLS: list[tuple[str, str, Any, list[str]]] = [
    ("GET", f"{AT}/resources", None, ["list ephemeralresources"]),
    ("GET", f"{AT}/resources/data1", None, ["get ephemeralresources data1"]),
    ("PUT", f"{AT}/resources/data1", RESOURCE, ["create ephemeralresources data1", "update ephemeralresources data1"]),
    (
        "PUT",
        f"{AT}/resources/data1",
        RESOURCE | {"shared": True},
        [
            *("create ephemeralresources data1", "update ephemeralresources data1"),
            *("create ephemeralresources/shared data1", "update ephemeralresources/shared data1"),
        ],
    ),
    ("DELETE", f"{AT}/resources/data1", None, ["delete ephemeralresources data1"]),
    (
        "DELETE",
        f"{AT}/resources/data1?shared=true",
        None,
        ["delete ephemeralresources data1", "delete ephemeralresources/shared data1"],
    ),
    ("GET", f"{AT}/policies", None, ["list escherpolicies"]),
    ("POST", f"{AT}/policies:validate", POLICY, ["get escherpolicies"]),
    ("GET", f"{AT}/policies/apart", None, ["get escherpolicies apart"]),
    ("PUT", f"{AT}/policies/apart", POLICY, ["create escherpolicies apart", "update escherpolicies apart"]),
    ("PATCH", f"{AT}/policies/apart", POLICY, ["patch escherpolicies apart"]),
    ("DELETE", f"{AT}/policies/apart", None, ["delete escherpolicies apart"]),
    ("POST", f"{AT}/policies/slots:ask", {"task": {"name": "t"}}, ["create escherpolicies/ask slots"]),
    ("GET", "/v1/policy-types", None, []),
    ("GET", f"{AT}/gangs", None, ["list gangs"]),
    ("GET", f"{AT}/gangs/train", None, ["get gangs train"]),
    ("GET", f"{AT}/gangs/train/explain", None, ["get explanations train"]),
    ("GET", f"{AT}/pods/train-0/explain", None, ["get explanations train-0"]),
    ("GET", f"{AT}/quota", None, ["get quotas"]),
    ("GET", "/v1/cluster-state?namespace=team-a", None, ["list nodestates"]),
    (
        "POST",
        "/v1/transactions",
        {
            "operations": [
                {"op": "set", "namespace": "team-a", "name": "data1", **RESOURCE},
                {"op": "set", "namespace": "team-a", "name": "all", "shared": True, **RESOURCE},
                {**CLAIM, "namespace": "team-a"},
                {"op": "release", "namespace": "team-a", "holder": "h"},
            ]
        },
        [
            *("create ephemeralresources data1", "update ephemeralresources data1"),
            *("create ephemeralresources all", "update ephemeralresources all"),
            *("create ephemeralresources/shared all", "update ephemeralresources/shared all"),
            *("create claims", "delete claims"),
        ],
    ),
]
EVERYWHERE: list[tuple[str, str, Any, str]] = [
    ("GET", "/v1/cluster-state", None, "list nodestates"),
    ("GET", "/v1/cluster-state?namespace=", None, "list nodestates"),
    ("GET", "/v1/events", None, "watch decisions"),
    ("GET", "/v1/safety-switches", None, "get brakes"),
    ("GET", "/v1/brake", None, "get brakes"),
    ("GET", "/v1/state-dump", None, "get statedumps"),
    ("POST", "/v1/what-if", {"question": {"drain": {"node": "n1"}}}, "create whatifs"),
]


def spelt(right: Right) -> str:
    return f"{right.verb} {right.resource} {right.name}".strip()


async def called(known: Known, management: NotedManagement, method: str, address: str, body: Any) -> httpx.Response:
    async with in_process(guarded(known, management)) as client:
        return await client.request(method, address, json=body, headers=bearer("a-token"))


def test_every_route_of_the_document_has_a_row_and_every_row_a_route() -> None:
    document = create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry()).openapi()
    routes = {
        (method.upper(), path.removeprefix("/v1"))
        for path, calls in document["paths"].items()
        for method in calls
        if path.startswith("/v1/")
    }
    assert routes == set(NEEDS)


def test_a_route_without_a_row_cannot_be_made() -> None:
    router = APIRouter(route_class=GuardedRoute)

    async def nothing() -> None: ...

    with pytest.raises(KeyError):
        router.add_api_route("/new", nothing, methods=["GET"])


def test_every_row_is_called_here() -> None:
    called_here = [(each[0], each[1].removeprefix("/v1").partition("?")[0]) for each in [*CALLS, *EVERYWHERE]]
    for method, path in NEEDS:
        pattern = re.sub(r"\{\w+\}", r"[^/:]+", path)
        assert any(method == by and re.fullmatch(pattern, at) for by, at in called_here), (method, path)


@pytest.mark.parametrize(("method", "address", "body", "rights"), CALLS, ids=lambda value: str(value)[:60])
async def test_whoever_has_exactly_these_rights_in_the_namespace_may(
    method: str, address: str, body: Any, rights: list[str]
) -> None:
    known, management = Known(), NotedManagement()
    for right in rights:
        verb, resource, *_ = right.split()
        known.give(APP_A, "team-a", resource, [verb])
    answer = await called(known, management, method, address, body)
    # What is asked about may not be there.
    assert answer.status_code in (200, 204, 404), answer.text
    asked = [each for each in known.asked if isinstance(each, Right)]
    elsewhere = [each for each in asked if each.namespace != "team-a"]
    asked = [each for each in asked if each.namespace == "team-a"]
    # Who may have everything explained is told names of other namespaces.
    everything = [Right(verb="get", resource="explanations")] if address.endswith("/explain") else []
    assert elsewhere == everything
    # All that is needed is asked for, and in no other namespace.
    assert [spelt(each) for each in asked] == [re.sub(r" \S+$", "", r) if r.count(" ") == 2 else r for r in rights]
    assert {each.namespace for each in asked} <= {"team-a"}


@pytest.mark.parametrize(
    ("method", "address", "body", "rights", "missing"),
    [(*call, right) for call in CALLS for right in call[3]],
    ids=lambda value: str(value)[:60],
)
async def test_whoever_lacks_one_of_them_is_told_which_and_nothing_is_done(
    method: str, address: str, body: Any, rights: list[str], missing: str
) -> None:
    known, management = Known(), NotedManagement()
    for right in rights:
        verb, resource, *_ = right.split()
        if (verb, resource) != tuple(missing.split()[:2]):
            known.give(APP_A, "team-a", resource, [verb])
        # It would be enough elsewhere.
        known.give(APP_A, "team-b", resource, [verb])
    answer = await called(known, management, method, address, body)
    assert answer.status_code == 403, answer.text
    told = answer.json()
    verb, resource, *name = missing.split()
    first = next(each for each in rights if each.split()[:2] == [verb, resource])
    assert told["title"] == "Not allowed"
    assert told["missing"] == {
        "verb": verb,
        "group": "escher.dev",
        "resource": resource,
        "namespace": "team-a",
        "name": first.split()[2] if name else "",
    }
    assert f"{APP_A!r} may not {verb} {resource}.escher.dev" in told["detail"]
    assert management.asked == []


@pytest.mark.parametrize(("method", "address", "body", "right"), EVERYWHERE, ids=lambda value: str(value)[:60])
async def test_what_is_about_the_whole_cluster_needs_a_right_in_all_namespaces(
    method: str, address: str, body: Any, right: str
) -> None:
    known, management = Known(), NotedManagement()
    verb, resource = right.split()
    known.give(APP_A, "team-a", resource, [verb])
    answer = await called(known, management, method, address, body)
    assert answer.status_code == 403, answer.text
    assert answer.json()["missing"]["namespace"] == ""
    assert f"may not {verb} {resource}.escher.dev in all namespaces" in answer.json()["detail"]
    assert management.asked == []


@pytest.mark.parametrize(("method", "address", "body", "right"), EVERYWHERE, ids=lambda value: str(value)[:60])
async def test_and_that_right_is_enough(method: str, address: str, body: Any, right: str) -> None:
    known, management = Known(), NotedManagement()
    verb, resource = right.split()
    known.give(APP_A, "", resource, [verb])
    if address == "/v1/events":
        # It would not end.
        management.announcements.close()
    answer = await called(known, management, method, address, body)
    assert answer.status_code not in (401, 403), answer.text


async def test_one_operation_in_another_namespace_refuses_the_whole_transaction() -> None:
    known, management = Known(), NotedManagement()
    known.give(APP_A, "team-a", "claims", ["create"])
    operations = [{**CLAIM, "namespace": "team-a"}, {**CLAIM, "namespace": "team-b"}]
    answer = await called(known, management, "POST", "/v1/transactions", {"operations": operations})
    assert answer.status_code == 403
    assert answer.json()["missing"]["namespace"] == "team-b"
    assert management.asked == []


async def test_a_dry_run_needs_the_same_rights() -> None:
    known, management = Known(), NotedManagement()
    answer = await called(known, management, "PUT", f"{AT}/resources/data1?dryRun=All", RESOURCE)
    assert answer.status_code == 403
    assert management.asked == []


async def test_rights_are_looked_at_before_the_body() -> None:
    """Whoever may not is told nothing of what a body would have to be."""
    known = Known()
    async with in_process(guarded(known)) as client:
        answer = await client.put(f"{AT}/resources/data1", content=b"[" * 1000, headers=bearer("a-token"))
    assert answer.status_code == 403


async def test_metrics_need_a_right_to_the_path() -> None:
    known = Known()
    async with in_process(guarded(known)) as client:
        refused = await client.get("/metrics", headers=bearer("a-token"))
        assert refused.status_code == 403
        assert refused.json()["missing"] == {"verb": "get", "path": "/metrics"}
        known.give(APP_A, "", "/metrics", ["get"])
        assert (await client.get("/metrics", headers=bearer("a-token"))).status_code == 200
        assert (await client.get("/metrics")).status_code == 401


@pytest.mark.parametrize("what", ["pods/p", "gangs/train"])
@pytest.mark.parametrize(("token", "everywhere"), [("a-token", False), ("admin-token", True)])
async def test_an_explanation_names_other_namespaces_to_who_may_have_all_explained(
    what: str, token: str, everywhere: bool
) -> None:
    known, management = Known(), NotedManagement()
    known.give(APP_A, "team-a", "explanations", ["get"])
    async with in_process(guarded(known, management)) as client:
        await client.get(f"/v1/namespaces/team-a/{what}/explain", headers=bearer(token))
    assert management.everywhere is everywhere
