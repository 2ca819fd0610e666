"""Who a replica is, and what it says of itself over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.adapters.http.server.readiness import Standing
from extender.availability import Candidate
from extender.settings.settings import BadSettings, load_settings
from tests.adapters.http.fakes import Ready, in_process, service

POD = {"POD_NAME": "escher-0", "POD_IP": "10.0.0.7", "POD_NAMESPACE": "escher-system"}


def test_a_pod_is_known_by_its_name_and_something_that_no_other_life_has() -> None:
    made = Candidate.of(load_settings(None, leader_election=True), 8080, POD, "0123456789abcdef")
    assert made == Candidate("escher-0-01234567", "10.0.0.7", 8080, "escher-system")
    assert made.url == "http://10.0.0.7:8080"


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert (
        Candidate.of(load_settings(None), 8080, {**POD, "POD_IP": "2001:db8::7"}, "0").url
        == "http://[2001:db8::7]:8080"
    )


def test_without_a_namespace_it_says_what_to_set() -> None:
    with pytest.raises(BadSettings, match="lease_namespace: it is not set, and neither POD_NAMESPACE"):
        Candidate.of(load_settings(None, leader_election=True), 8080, {}, "0")


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "of this machine alone"), ("0.0.0.0", "no single one"), ("here", "no address")]
)
def test_a_service_leads_to_an_address_that_others_reach(host: str, why: str) -> None:
    settings = load_settings(None, leader_election=True, leader_service="escher", host=host, insecure=True)
    with pytest.raises(BadSettings, match=f"no Service can lead to '{host}', for it is {why}; set .* POD_IP"):
        Candidate.of(settings, 8080, {"POD_NAMESPACE": "a"}, "0")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lease_seconds": 1}, "lease_seconds = 1"),
        ({"lease_seconds": 61}, "lease_seconds = 61"),
        ({"lease_name": "Escher"}, "lease_name = 'Escher'"),
        ({"lease_namespace": "a/b"}, "lease_namespace = 'a/b'"),
        ({"leader_service": "escher"}, "there is no leader without `leader_election: true`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        load_settings(None, **given)


def following(*, warm: bool = True, leader: str = "escher-1", at: str = "http://10.0.0.8:8080") -> httpx.AsyncClient:
    ready = Ready()
    ready.now = False
    return in_process(service(ready=ready, replica=lambda: Standing(False, warm, leader, at)))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/scheduler/filter"), ("POST", "/scheduler/bind"), ("GET", "/v1/cluster-state")]
)
async def test_who_follows_says_who_leads_and_ends_the_connection(method: str, path: str) -> None:
    async with following() as client:
        answer = await client.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == 503
    assert answer.json() == {
        "type": "urn:escher:problem:not-leading",
        "title": "Another replica leads",
        "status": 503,
        "detail": "this replica does not lead; escher-1 leads, at http://10.0.0.8:8080",
        "field": None,
        "leader": "escher-1",
        "at": "http://10.0.0.8:8080",
    }
    # A Service leads new connections to the leader, and moves none that is open.
    assert answer.headers["connection"] == "close"


@pytest.mark.anyio
async def test_where_nobody_leads_it_says_so() -> None:
    async with following(leader="", at="") as client:
        assert "no replica leads at the moment" in (await client.post("/scheduler/filter")).json()["detail"]


@pytest.mark.anyio
async def test_who_follows_is_ready_once_it_could_take_over() -> None:
    async with following(warm=False) as client:
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
    async with following() as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "ages": {},
        "leading": False,
        "leader": "escher-1",
        "without": [],
        "lost": {},
    }


@pytest.mark.anyio
async def test_who_leads_and_has_not_read_the_cluster_is_not_ready() -> None:
    ready = Ready()
    ready.now = False
    async with in_process(service(ready=ready, replica=lambda: Standing(True, True, "me", ""))) as client:
        assert (await client.get("/readyz")).json()["type"] == "urn:escher:problem:not-ready"
        assert (await client.post("/scheduler/filter")).json()["type"] == "urn:escher:problem:not-ready"
