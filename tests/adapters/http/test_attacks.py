"""Attacks on the management API and the verbs: each is refused, nothing of it is stored, and the service goes on.

The application behind it is the real one, on an API server in memory. Attacks on connections (heads and bodies that
come slowly or without end, floods of connections) are in `test_connections`, on certificates in `test_tls`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from extender.adapters.http.call_admission import Entry
from extender.adapters.http.server.asgi import Service
from extender.app.admin.authorization import Authorization
from tests.adapters.http.connected import Site
from tests.adapters.http.fakes import NotedVerbs, asking, filter_body, in_process, service
from tests.adapters.http.known import APP_A, Known, bearer
from tests.app.world import World

pytestmark = pytest.mark.anyio

MIB = 2**20
MANY_LABELS = {f"k{number}": "v" for number in range(20_000)}
RESOURCE = {"capacity": 1, "node_spec": "n1"}
POLICY = {"type": "anti-affinity", "parameters": {}, "selector": {"match_labels": {"app": "web"}}}
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@dataclass
class Target:
    """A service for callers with tokens: the application of `team-a` may do all to its own namespace."""

    world: World
    known: Known
    verbs: NotedVerbs
    app: Service
    client: httpx.AsyncClient

    def untouched(self) -> None:
        """Nothing of all that is stored, and the ledger is right."""
        assert {name for _, name in self.world.api.objects} <= {"good"}
        assert self.world.policies.list_policies("team-a") == []
        self.world.audit()

    async def goes_on(self) -> None:
        """Whoever may is served as ever."""
        answer = await self.client.put("/v1/namespaces/team-a/resources/good", json=RESOURCE, headers=bearer("a-token"))
        assert answer.status_code == 200, answer.text
        assert answer.json()["nodes"] == {"n1": 1}

    async def refused(self, status: int | set[int], method: str, path: str, **sent: Any) -> dict[str, Any]:
        """What the caller was told; nothing came of it, and the service goes on."""
        sent.setdefault("headers", bearer("a-token"))
        answer = await self.client.request(method, path, **sent)
        assert answer.status_code in ({status} if isinstance(status, int) else status), answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert len(answer.content) < 10_000
        self.untouched()
        await self.goes_on()
        told: dict[str, Any] = answer.json()
        return told


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    world, known, verbs = World(), Known(), NotedVerbs()
    world.add_nodes("n1", "n2")
    for resource in ("ephemeralresources", "escherpolicies", "claims"):
        known.give(APP_A, "team-a", resource, ["get", "list", "create", "update", "patch", "delete"])
    entry = Entry(authority=Authorization(known, asyncio.get_running_loop().time, 10.0))
    app = service(verbs, world.management(), entry=entry)
    with capture_logs():
        async with world.running(), in_process(app) as client:
            yield Target(world, known, verbs, app, client)
    world.audit()


# -- who calls


@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("of-another-cluster", 401), ("a-token", 403)],
    ids=["no token", "a foreign token", "the token of another namespace"],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/namespaces/team-b/resources/data1", RESOURCE),
        ("DELETE", "/v1/namespaces/team-b/resources/data1", None),
        ("PUT", "/v1/namespaces/team-b/policies/apart", POLICY),
        ("PATCH", "/v1/namespaces/team-b/policies/apart", {}),
        ("DELETE", "/v1/namespaces/team-b/policies/apart", None),
        ("POST", "/v1/namespaces/team-b/policies/apart:ask", {"task": {"name": "t"}}),
        (
            "POST",
            "/v1/transactions",
            {"operations": [{"op": "set", "namespace": "team-b", "name": "data1", **RESOURCE}]},
        ),
        ("GET", "/v1/namespaces/team-b/resources", None),
        ("GET", "/v1/cluster-state", None),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_who_may_not_changes_and_learns_nothing(
    target: Target, token: str, status: int, method: str, path: str, body: Any
) -> None:
    headers = bearer(token) if token else {}
    await target.refused(status, method, path, json=body, headers=headers)


async def test_a_token_that_has_expired_is_good_for_seconds_at_most(target: Target) -> None:
    await target.goes_on()
    del target.known.tokens["a-token"]
    await asyncio.sleep(10)
    answer = await target.client.put("/v1/namespaces/team-a/resources/late", json=RESOURCE, headers=bearer("a-token"))
    assert answer.status_code == 401
    target.untouched()


async def test_a_shared_name_is_not_had_with_the_rights_of_a_namespace(target: Target) -> None:
    path = "/v1/namespaces/team-a/resources/all"
    told = await target.refused(403, "PUT", path, json=RESOURCE | {"shared": True})
    assert told["missing"]["resource"] == "ephemeralresources/shared"


async def test_a_shared_name_in_a_transaction_is_not_either(target: Target) -> None:
    operation = {"op": "set", "namespace": "team-a", "name": "all", "shared": True, **RESOURCE}
    await target.refused(403, "POST", "/v1/transactions", json={"operations": [operation]})


@pytest.mark.parametrize("name", ["cpu", "nvidia.com/gpu", "kubernetes.io/x", "escher.dev/team-b.data1"])
async def test_reserved_names_and_those_of_others_are_not_to_be_had_by_spelling(target: Target, name: str) -> None:
    if name == "cpu":
        # Of our domain: another resource altogether.
        answer = await target.client.put(
            "/v1/namespaces/team-a/resources/cpu", json=RESOURCE, headers=bearer("a-token")
        )
        assert answer.json()["key"] == "escher.dev/team-a.cpu"
        return
    told = await target.refused(422, "PUT", f"/v1/namespaces/team-a/resources/{name}", json=RESOURCE)
    assert told["field"] == "name"


# -- names that look like paths


@pytest.mark.parametrize(
    "name",
    [
        "..%2F..%2Fteam-b%2Fresources%2Fdata1",
        "../../team-b/resources/data1",
        "%2e%2e/%2e%2e/team-b/resources/data1",
        "..%5C..%5Cdata1",
        "data1%00",
        "data1%0aX-Header:%20x",
        "data1%3FdryRun=All",
        "%252e%252e",
        "team-b.data1",
        "DATA1",
        "a" * 300,
        "%F0%9F%92%A3",
        "${jndi:ldap:%2F%2Fx}",
        "'%20OR%201=1",
    ],
)
@pytest.mark.parametrize("kind", ["resources", "policies"])
async def test_names_that_look_like_paths_lead_nowhere(target: Target, kind: str, name: str) -> None:
    body = RESOURCE if kind == "resources" else POLICY
    raw = f"/v1/namespaces/team-a/{kind}/{name}"
    # As bytes, for clients would tidy it up.
    url = httpx.URL("http://escher.test").copy_with(raw_path=raw.encode())
    await target.refused({403, 404, 422}, "PUT", str(url), json=body)


@pytest.mark.parametrize("namespace", ["..", "team-a%2F..%2Fteam-b", "team-a%00", "TEAM-A", "*", ""])
async def test_namespaces_that_look_like_paths_are_none(target: Target, namespace: str) -> None:
    await target.refused({403, 404, 405, 422}, "PUT", f"/v1/namespaces/{namespace}/resources/data1", json=RESOURCE)


# -- bodies


@pytest.mark.parametrize("token", ["a-token", "", "guessed"])
async def test_an_oversized_body_is_refused_and_before_that_whoever_may_not_send_it(target: Target, token: str) -> None:
    headers = bearer(token) if token else {}
    body = b'{"capacity": 1, "node_spec": "' + b"n" * 5 * MIB + b'"}'
    status = 413 if token == "a-token" else 401
    await target.refused(status, "PUT", "/v1/namespaces/team-a/resources/data1", content=body, headers=headers)


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/namespaces/team-a/resources/data1"),
        ("PUT", "/v1/namespaces/team-a/policies/apart"),
        ("POST", "/v1/transactions"),
    ],
)
async def test_deeply_nested_json_is_refused(
    target: Target, method: str, path: str, opening: bytes, closing: bytes, depth: int
) -> None:
    body = opening * min(depth, 600_000) + b"1" + closing * min(depth, 600_000)
    await target.refused({400, 413, 422}, method, path, content=body[: 4 * MIB])


@pytest.mark.parametrize(
    "body",
    [
        {
            "type": "anti-affinity",
            "parameters": {},
            "selector": {"match_labels": MANY_LABELS},
        },
        {"type": "anti-affinity", "parameters": {}, "selector": {"match_labels": {"app": "v" * MIB}}},
        {"type": "anti-affinity", "parameters": {}, "selector": {"match_labels": {"k" * MIB: "v"}}},
        {
            "type": "anti-affinity",
            "parameters": {},
            "selector": {
                "match_expressions": [{"key": "app", "operator": "In", "values": [str(n) for n in range(100_000)]}]
            },
        },
    ],
    ids=["many labels", "a long value", "a long key", "many values"],
)
async def test_a_bomb_of_labels_is_no_policy(target: Target, body: Any) -> None:
    await target.refused({413, 422}, "PUT", "/v1/namespaces/team-a/policies/apart", json=body)


async def test_a_bomb_of_node_labels_is_no_resource(target: Target) -> None:
    spec = {"labels": {f"k{n}.example/{'x' * 60}": "v" * 60 for n in range(20_000)}}
    body = {"capacity": 1, "node_spec": spec}
    await target.refused({413, 422}, "PUT", "/v1/namespaces/team-a/resources/data1", json=body)


@pytest.mark.parametrize(
    "pod",
    [
        asking({"cpu": "1"}, labels={f"k{n}": "v" for n in range(50_000)}),
        asking({"cpu": "1"}, annotations={"escher.dev/policy": "a," * 500_000}),
        asking({"cpu": "1"}, annotations={"escher.dev/policy": "|" * 500_000}),
        asking({"cpu": "1"}, labels={"escher.dev/gang": "g" * 500_000}),
        asking(
            {"cpu": "1"}, labels={"escher.dev/gang": "g"}, annotations={"escher.dev/gang-min-member": "9" * 500_000}
        ),
        asking({f"escher.dev/team-a.r{n}": "1" for n in range(20_000)}),
    ],
    ids=["labels", "policies", "alternatives", "a gang's name", "a quorum", "resources"],
)
async def test_a_pod_that_is_a_bomb_is_answered_and_so_is_the_next_one(target: Target, pod: Any) -> None:
    """API servers take less than this of a pod: whoever sends it is no kube-scheduler."""
    from tests.adapters.http.test_ledger_unharmed import KeepersVerbs

    scheduler = KeepersVerbs()
    async with in_process(service(scheduler)) as client:
        answer = await client.post("/scheduler/filter", json=filter_body(pod, ["n1", "n2"]))
        assert answer.status_code in (200, 400)
        # A reason is constant, and none of the bomb's text is in it.
        assert len(answer.content) < 10_000
        after = await client.post("/scheduler/filter", json=filter_body(names=["n1", "n2"]))
        assert set(after.json()["NodeNames"]) <= {"n1", "n2"}
        assert after.json()["NodeNames"]
    scheduler.ledger()


async def test_too_many_operations_are_none(target: Target) -> None:
    operations = [{"op": "release", "namespace": "team-a", "holder": f"h{n}"} for n in range(1001)]
    await target.refused(422, "POST", "/v1/transactions", json={"operations": operations})


# -- pages


async def test_script_in_a_policys_name_is_no_name_and_in_no_page(target: Target) -> None:
    pages = [(await target.client.get(path)).text for path in ("/docs", "/openapi.json")]
    for name in (SCRIPT, "%3Cscript%3Ealert(1)%3C%2Fscript%3E", '"><img src=x>'):
        await target.refused({404, 422}, "PUT", f"/v1/namespaces/team-a/policies/{name}", json=POLICY)
    body = POLICY | {"selector": {"match_labels": {"app": SCRIPT}}}
    await target.refused(422, "PUT", "/v1/namespaces/team-a/policies/apart", json=body)
    assert [(await target.client.get(path)).text for path in ("/docs", "/openapi.json")] == pages
    assert SCRIPT not in "".join(pages)


async def test_script_in_an_address_is_told_as_json_and_nothing_takes_it_for_a_page(target: Target) -> None:
    told = await target.refused(404, "GET", f"/v1/{SCRIPT}")
    assert told["title"] == "Not found"
    told = await target.refused(401, "GET", f"/docs/{SCRIPT}", headers={})
    assert SCRIPT not in json.dumps(told)


# -- connections


async def test_whoever_may_not_is_answered_before_a_body_has_to_be_waited_for(target: Target) -> None:
    """A slow body costs nothing but its sender: it is not read."""
    line = Site(app=target.app).line()
    head = b"PUT /v1/namespaces/team-a/resources/data1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    line.send(head + b"{")
    await asyncio.sleep(0.1)
    assert line.status() == 401
    assert target.known.asked == []
    target.untouched()


async def test_a_flood_of_headers_is_refused_before_tokens_are_looked_at(target: Target) -> None:
    line = Site(app=target.app).line()
    line.send(b"GET /v1/safety-switches HTTP/1.1\r\nHost: x\r\n")
    for number in range(10_000):
        if line.told:
            break
        line.send(b"X-%d: Bearer a-token\r\n" % number)
    assert line.status() == 431
    assert target.known.asked == []
    await target.goes_on()


async def test_a_body_that_stops_coming_is_refused_and_its_token_does_not_help(target: Target) -> None:
    line = Site(app=target.app).line()
    head = b"PUT /v1/namespaces/team-a/resources/data1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a-token\r\n"
    line.send(head + b"Content-Length: 1000\r\n\r\n{")
    await asyncio.sleep(9)
    assert not line.told
    await asyncio.sleep(12)
    assert line.status() == 408
    target.untouched()
    await target.goes_on()
