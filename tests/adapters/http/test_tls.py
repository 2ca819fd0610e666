"""TLS: verbs are for kube-scheduler's certificate; what else needs which; and files that change while calls go on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trustme
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from extender.adapters.http.call_admission import Entry, entry_of
from extender.adapters.http.server.tls import ServedCertificates
from extender.adapters.metrics import CertificateMetrics
from extender.settings.settings import Settings
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, bind_body, filter_body, pod_json, service
from tests.adapters.http.papers import SCHEDULER, Papers, caller, calling, over_tls

pytestmark = pytest.mark.anyio

VERBS = {
    "filter": filter_body(),
    "prioritize": filter_body(),
    "bind": bind_body(),
    "preempt": {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": {}},
}
ENTRY = entry_of(Settings.model_validate({"tls_certificate": "crt", "tls_key": "key", "tls_client_ca": "ca"}))


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def papers(tmp_path: Path, authority: trustme.CA) -> Papers:
    made = Papers(tmp_path)
    made.serve_with(authority)
    made.trust(authority)
    return made


# -- who may call the verbs


async def test_kube_schedulers_certificate_opens_the_verbs(papers: Papers, authority: trustme.CA) -> None:
    verbs = NotedVerbs()
    async with (
        over_tls(service(verbs, entry=ENTRY), papers.served()) as address,
        calling(address, caller(authority, authority)) as scheduler,
    ):
        for verb, body in VERBS.items():
            answer = await scheduler.post(f"/scheduler/{verb}", json=body)
            assert answer.status_code == 200, answer.text
    assert [call[0] for call in verbs.calls] == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", [None, "system:kube-controller-manager", "System:Kube-Scheduler"])
async def test_no_other_certificate_does_and_none_does_not(
    papers: Papers, authority: trustme.CA, verb: str, name: str | None
) -> None:
    verbs = NotedVerbs()
    context = caller(authority) if name is None else caller(authority, authority, name)
    async with over_tls(service(verbs, entry=ENTRY), papers.served()) as address, calling(address, context) as other:
        answer = await other.post(f"/scheduler/{verb}", json=VERBS[verb])
        assert (answer.status_code, answer.json()["title"]) == (403, "Not allowed")
        assert "tls_scheduler_names" in answer.json()["detail"]
        assert (await other.get("/healthz")).status_code == 200
    assert verbs.calls == []


async def test_names_of_schedulers_are_a_setting(papers: Papers, authority: trustme.CA) -> None:
    entry = Entry(schedulers=frozenset({"second-scheduler"}))
    async with over_tls(service(entry=entry), papers.served()) as address:
        for name, status in (("second-scheduler", 200), (SCHEDULER, 403)):
            async with calling(address, caller(authority, authority, name)) as one:
                assert (await one.post("/scheduler/filter", json=filter_body())).status_code == status


async def test_a_certificate_of_a_foreign_authority_is_turned_away_in_the_handshake(
    papers: Papers, authority: trustme.CA
) -> None:
    verbs = NotedVerbs()
    async with (
        over_tls(service(verbs, entry=ENTRY), papers.served()) as address,
        calling(address, caller(authority, trustme.CA())) as foreign,
    ):
        for path in ("/scheduler/filter", "/v1/transactions"):
            with pytest.raises(httpx.TransportError):
                await foreign.post(path, json=filter_body())
        with pytest.raises(httpx.TransportError):
            await foreign.get("/healthz")
    assert verbs.calls == []


async def test_without_authorization_the_management_api_needs_any_certificate_of_ours(
    papers: Papers, authority: trustme.CA
) -> None:
    management = NotedManagement()
    async with over_tls(service(management=management, entry=ENTRY), papers.served()) as address:
        async with calling(address, caller(authority)) as nobody:
            for path in ("/v1/safety-switches", "/v1/nothing", "/metrics", "/nothing"):
                refused = await nobody.get(path)
                assert (refused.status_code, refused.json()["title"]) == (401, "The caller is unknown"), path
            for path in ("/healthz", "/readyz", "/version", "/docs", "/openapi.json"):
                assert (await nobody.get(path)).status_code == 200, path
        assert management.asked == []
        async with calling(address, caller(authority, authority, "somebody")) as known:
            assert (await known.get("/v1/safety-switches")).status_code == 200
            assert (await known.get("/metrics")).status_code == 200


async def test_what_is_not_tls_1_3_is_not_spoken(papers: Papers, authority: trustme.CA) -> None:
    """Sessions of older versions are resumed without showing a certificate again."""
    context = caller(authority, authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with over_tls(service(entry=ENTRY), papers.served()) as address, calling(address, context) as old:
        with pytest.raises(httpx.TransportError):
            await old.get("/healthz")


# -- files that change


async def test_a_rotation_of_authority_and_leaf_under_load_loses_no_call(papers: Papers, authority: trustme.CA) -> None:
    old, new = authority, trustme.CA()
    certificates = papers.served()
    statuses: list[int] = []
    rotated = asyncio.Event()

    async def load(one: httpx.AsyncClient) -> None:
        while not rotated.is_set():
            statuses.append((await one.post("/scheduler/filter", json=filter_body())).status_code)

    async def new_connections(context: Callable[[], ssl.SSLContext]) -> None:
        while not rotated.is_set():
            async with calling(address, context()) as one:
                statuses.append((await one.post("/scheduler/filter", json=filter_body())).status_code)

    def shows(by: trustme.CA) -> ssl.SSLContext:
        context = caller(old, by)
        new.configure_trust(context)
        return context

    async with over_tls(service(entry=ENTRY), certificates) as address:
        # Who is trusted now: first only the old one's; while the rotation goes on callers change over.
        shown = [old]
        async with calling(address, shows(old)) as kept:
            loads = [asyncio.create_task(load(kept)), asyncio.create_task(new_connections(lambda: shows(shown[0])))]

            async def some_more() -> None:
                target = len(statuses) + 20
                while len(statuses) < target:
                    assert not any(each.done() for each in loads), [each for each in loads if each.done()]
                    await asyncio.sleep(0)

            await some_more()
            papers.trust(old, new)
            certificates.look()
            await some_more()
            shown[0] = new
            await some_more()
            papers.serve_with(new)
            certificates.look()
            await some_more()
            papers.trust(new)
            certificates.look()
            await some_more()
            rotated.set()
            await asyncio.gather(*loads)
        assert set(statuses) == {200}
        # New handshakes know the new authority alone, on either side.
        async with calling(address, caller(new, new)) as scheduler:
            assert (await scheduler.post("/scheduler/filter", json=filter_body())).status_code == 200
        async with calling(address, caller(new, old)) as late:
            with pytest.raises(httpx.TransportError):
                await late.post("/scheduler/filter", json=filter_body())
        async with calling(address, caller(old, new)) as distrustful:
            with pytest.raises(httpx.ConnectError):
                await distrustful.get("/healthz")


async def test_a_session_is_not_resumed_past_the_authorities_of_its_time(papers: Papers, authority: trustme.CA) -> None:
    certificates = papers.served()
    context = caller(authority, authority)
    other = trustme.CA()

    def asked(port: int, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as line,
        ):
            line.sendall(b"GET /v1/safety-switches HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return line.recv(12), line.session

    async with over_tls(service(entry=ENTRY), certificates) as address:
        port = int(address.rpartition(":")[2])
        told, session = await asyncio.to_thread(asked, port, None)
        assert told == b"HTTP/1.1 200"
        papers.trust(other)
        certificates.look()
        told = b""
        with suppress(ssl.SSLError, ConnectionError):
            told, _ = await asyncio.to_thread(asked, port, session)
        assert told == b""


def test_files_that_cannot_be_used_change_nothing_and_are_complained_of_once(papers: Papers) -> None:
    certificates = papers.served()
    good = certificates.ends_at
    papers.certificate.write_text("garbage\n")
    with capture_logs() as lines:
        for _ in range(5):
            certificates.look()
    assert [line["event"] for line in lines] == ["new certificates are unusable: the current ones stay in use"]
    assert "it has no certificate (PEM)" in lines[0]["why"]
    assert (certificates.unusable, certificates.ends_at) == (1, good)
    papers.serve_with(trustme.CA())
    with capture_logs() as lines:
        for _ in range(3):
            certificates.look()
    assert [line["event"] for line in lines] == ["new certificates are in use"]
    papers.client_ca.unlink()
    with capture_logs() as lines:
        for _ in range(3):
            certificates.look()
    assert "No such file" in lines[0]["why"]
    assert certificates.unusable == 2


def test_files_that_are_put_in_place_one_after_the_other_are_not_complained_of(papers: Papers) -> None:
    certificates = papers.served()
    before = papers.key.read_bytes()
    papers.serve_with(trustme.CA())
    new_key = papers.key.read_bytes()
    papers.key.write_bytes(before)
    with capture_logs() as lines:
        certificates.look()
        papers.key.write_bytes(new_key)
        certificates.look()
        certificates.look()
    assert [line["event"] for line in lines] == ["new certificates are in use"]
    assert certificates.unusable == 0


async def test_the_files_are_looked_at_every_few_seconds(papers: Papers) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            papers.serve_with(trustme.CA())
        if len(paused) == 4:
            raise asyncio.CancelledError

    certificates = papers.served(sleep=sleep)
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await certificates.run()
    assert paused == [3.0] * 4
    assert [line["event"] for line in lines] == ["new certificates are in use"]


def test_when_the_certificate_ends_is_a_metric(papers: Papers) -> None:
    certificates: ServedCertificates = papers.served()
    registry = CollectorRegistry()
    registry.register(CertificateMetrics(certificates, now=lambda: certificates.ends_at - 60))
    told = generate_latest(registry).decode()
    assert "escher_certificate_expires_seconds 60.0" in told
    assert "escher_certificates_unusable_total 0.0" in told
