"""Entry: whose token it is, at what rate they may call, and the line of the log that is left of each write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from extender.adapters.http.call_admission import Entry, entry_of
from extender.adapters.http.server.listening import http_server
from extender.app.admin.authorization import Right
from extender.app.cache.rates import Rates
from extender.kube.errors import Refused, Unavailable
from extender.settings.settings import Settings, load_settings
from tests.adapters.http.fakes import NotedManagement, filter_body, in_process, service
from tests.adapters.http.known import APP_A, Known, bearer, guarded

pytestmark = pytest.mark.anyio

AT = "/v1/namespaces/team-a"
RESOURCE = {"capacity": 1, "node_spec": "n1"}


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def written(log: list[Any]) -> list[Any]:
    return [line for line in log if line["event"] == "audited"]


# -- tokens


@pytest.mark.parametrize(
    "path", ["/v1/safety-switches", "/v1/policy-types", f"{AT}/gangs", "/v1/nothing", "/nothing", "/metrics"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("of-another-cluster"),
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer admin-token admin-token"},
        {"Authorization": "admin-token"},
    ],
    ids=str,
)
async def test_whoever_shows_no_token_of_somebodys_is_told_how(
    known: Known, path: str, headers: dict[str, str]
) -> None:
    management = NotedManagement()
    async with in_process(guarded(known, management)) as client:
        answer = await client.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="escher"'
    assert answer.json()["title"] == "The caller is unknown"
    assert "token" in answer.json()["detail"]
    assert management.asked == []


async def test_two_tokens_are_none(known: Known) -> None:
    async with in_process(guarded(known)) as client:
        headers = [("Authorization", "Bearer admin-token"), ("Authorization", "Bearer a-token")]
        assert (await client.get("/v1/safety-switches", headers=headers)).status_code == 401
    assert known.asked == []


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/version", "/openapi.json", "/docs"])
async def test_health_and_the_document_are_for_everybody(known: Known, path: str) -> None:
    async with in_process(guarded(known)) as client:
        assert (await client.get(path)).status_code == 200
    assert known.asked == []


async def test_a_token_makes_nobody_a_scheduler_where_schedulers_show_certificates(known: Known) -> None:
    entry = Entry(schedulers=frozenset({"system:kube-scheduler"}))
    async with in_process(service(entry=entry)) as client:
        answer = await client.post("/scheduler/filter", json=filter_body(), headers=bearer("admin-token"))
    assert answer.status_code == 403


@pytest.mark.parametrize("error", [Unavailable("etcd is slow", 7), Refused(403, "cannot create tokenreviews")])
@pytest.mark.parametrize("token", ["admin-token", "nobody's"])
async def test_while_the_api_server_does_not_say_nobody_may(known: Known, error: Exception, token: str) -> None:
    management = NotedManagement()
    known.fail = error
    async with in_process(guarded(known, management)) as client:
        answer = await client.get("/v1/safety-switches", headers=bearer(token))
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == ("7" if isinstance(error, Unavailable) else "10")
    assert management.asked == []


# -- rates


async def test_one_who_calls_too_often_is_told_when_to_come_again_and_others_are_served(known: Known) -> None:
    management = NotedManagement()
    rates = Rates(per_second=0.1, burst=3)
    known.give(APP_A, "team-a", "gangs", ["list"])
    async with in_process(guarded(known, management, rates=rates, believed=100.0)) as client:
        # One more for asking whose the token is.
        statuses = [(await client.get(f"{AT}/gangs", headers=bearer("a-token"))).status_code for _ in range(4)]
        assert statuses == [200] * 3 + [429]
        refused = await client.get(f"{AT}/gangs", headers=bearer("a-token"))
        assert refused.json()["title"] == "Too many calls"
        assert refused.headers["Retry-After"] == "10"
        assert (await client.get(f"{AT}/gangs", headers=bearer("admin-token"))).status_code == 200


async def test_tokens_can_be_guessed_so_often_and_no_oftener(known: Known) -> None:
    async with in_process(guarded(known, rates=Rates(per_second=0.001, burst=5))) as client:
        statuses = [
            (await client.get("/v1/safety-switches", headers=bearer(f"guess-{n}"))).status_code for n in range(20)
        ]
    assert statuses == [401] * 5 + [429] * 15
    assert len(known.asked) == 5


async def test_nobody_on_this_machine_can_be_told_from_anybody_and_elsewhere_addresses_count() -> None:
    entry = Entry(rates=Rates(per_second=0.001, burst=2))
    app = service(entry=entry)
    for address, statuses in (("127.0.0.1", [200] * 4), ("192.0.2.7", [200, 200, 429, 429])):
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://escher.test") as client:
            assert [(await client.get("/v1/safety-switches")).status_code for _ in range(4)] == statuses


async def test_health_is_not_counted() -> None:
    entry = Entry(rates=Rates(per_second=0.001, burst=1))
    transport = httpx.ASGITransport(service(entry=entry), client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://escher.test") as client:
        assert [(await client.get("/healthz")).status_code for _ in range(5)] == [200] * 5


def test_the_rate_is_a_setting() -> None:
    entry = entry_of(Settings.model_validate({"api_qps": 1.0, "api_burst": 2}))
    assert entry.rates is not None
    assert [entry.rates.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]


# -- what is left of a write


async def test_a_write_leaves_a_line_and_the_token_is_in_none(known: Known, log: list[Any]) -> None:
    known.give(APP_A, "team-a", "ephemeralresources", ["create", "update"])
    async with in_process(guarded(known)) as client:
        answer = await client.put(f"{AT}/resources/data1?dryRun=All", json=RESOURCE, headers=bearer("a-token"))
    assert answer.status_code == 200
    assert written(log) == [
        {
            "event": "audited",
            "log_level": "info",
            "user": APP_A,
            "address": "127.0.0.1",
            "verb": "PUT",
            "path": f"{AT}/resources/data1",
            "rights": [
                "create ephemeralresources.escher.dev data1 in namespace team-a",
                "update ephemeralresources.escher.dev data1 in namespace team-a",
            ],
            "rights_in_all": 2,
            "dry_run": True,
            "status": 200,
        }
    ]
    assert "a-token" not in str(log)


@pytest.mark.parametrize(
    ("headers", "status", "user"), [(bearer("a-token"), 403, APP_A), (bearer("guessed"), 401, ""), ({}, 401, "")]
)
async def test_so_does_one_that_was_refused(
    known: Known, log: list[Any], headers: dict[str, str], status: int, user: str
) -> None:
    async with in_process(guarded(known)) as client:
        await client.delete(f"{AT}/resources/data1", headers=headers)
    [line] = written(log)
    assert (line["status"], line["user"], line["verb"], line["dry_run"]) == (status, user, "DELETE", False)
    assert "guessed" not in str(log)


async def test_and_one_that_is_invalid_or_too_large(known: Known, log: list[Any]) -> None:
    async with in_process(guarded(known)) as client:
        await client.put(f"{AT}/resources/data1", json={"capacity": -1}, headers=bearer("admin-token"))
        await client.put(f"{AT}/resources/data1", content=b" " * 5 * 2**20, headers=bearer("admin-token"))
    assert [line["status"] for line in written(log)] == [422, 413]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{AT}/resources", None),
        ("POST", "/v1/what-if", {"question": {}}),
        ("POST", f"{AT}/policies:validate", {"type": "anti-affinity"}),
    ],
)
async def test_what_changes_nothing_leaves_none(
    known: Known, log: list[Any], method: str, path: str, body: Any
) -> None:
    async with in_process(guarded(known)) as client:
        await client.request(method, path, json=body, headers=bearer("admin-token"))
    assert written(log) == []


async def test_a_transaction_tells_what_it_was_about_within_bounds(known: Known, log: list[Any]) -> None:
    operations = [{"op": "release", "namespace": f"team-{n}", "holder": "h"} for n in range(100)]
    async with in_process(guarded(known)) as client:
        await client.post("/v1/transactions", json={"operations": operations}, headers=bearer("admin-token"))
    [line] = written(log)
    assert (len(line["rights"]), line["rights_in_all"]) == (20, 100)
    assert line["rights"][0] == "delete claims.escher.dev in namespace team-0"


async def test_a_line_is_bounded_and_one_whatever_the_path_says(known: Known, log: list[Any]) -> None:
    async with in_process(guarded(known)) as client:
        await client.delete(f"{AT}/resources/{'x' * 5000}%0Aevent=forged", headers=bearer("admin-token"))
    [line] = written(log)
    assert len(line["path"]) == 300
    assert all(len(each) <= 300 for each in line["rights"])


# -- what a hostile reading found


async def test_a_path_with_a_line_break_at_its_end_needs_the_same_right(known: Known) -> None:
    async with in_process(guarded(known)) as client:
        assert (await client.get("/metrics%0A", headers=bearer("a-token"))).status_code == 403


async def test_a_name_that_nothing_can_have_is_neither_asked_about_nor_told_whole(known: Known) -> None:
    async with in_process(guarded(known, believed=10.0)) as client:
        for path in (f"{AT}/policies/{'x' * 60_000}", f"/v1/namespaces/{'n' * 60_000}/policies"):
            answer = await client.get(path, headers=bearer("a-token"))
            assert answer.status_code == 403
            assert len(answer.content) < 10_000
    rights = [each for each in known.asked if isinstance(each, Right)]
    assert rights
    assert all(len(each.name) <= 253 and len(each.namespace) <= 63 for each in rights)


async def test_too_many_operations_are_refused_before_each_is_looked_at(known: Known) -> None:
    async with in_process(guarded(known)) as client:
        answer = await client.post("/v1/transactions", json={"operations": [{}] * 1001}, headers=bearer("a-token"))
    assert answer.status_code == 422
    assert answer.json()["field"] == "operations"
    assert "at most 1000 operations" in answer.json()["detail"]


def test_who_calls_is_who_has_connected_whatever_a_header_says() -> None:
    assert not http_server(service(), load_settings(None)).config.proxy_headers
