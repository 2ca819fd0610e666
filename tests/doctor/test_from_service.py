"""What is read of the service, from answers as it gives them, refuses them, or somebody else gives in its place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from extender.doctor.facts import Part
from extender.doctor.from_service import PARTS, Answer, NobodyThere, read_service

ADDRESS = "http://127.0.0.1:8080"
WELL: Mapping[str, Answer] = {
    "/version": Answer(200, {"version": "9.9", "python": "3.11"}),
    "/readyz": Answer(200, {"status": "ok", "ages": {"pods": 1.5}}),
    "/v1/safety-switches": Answer(200, {"everywhere": {"observe_only": True}}),
    "/v1/cluster-state": Answer(200, {"items": [{"node": "n1"}, {"node": "n2"}], "continue": None}),
}


def asked(**answers: Answer) -> Any:
    """`answers`: others than well, by the last word of the path."""

    def get(path: str) -> Answer:
        whole = path.partition("?")[0]
        return answers.get(whole.rpartition("/")[2].replace("-", "_"), WELL[whole])

    return get


def test_all_of_it_is_read() -> None:
    found, unread = read_service(ADDRESS, asked())
    assert unread == {}
    assert (found.address, found.version, dict(found.ages), found.nodes) == (
        *(ADDRESS, "9.9", {"pods": 1.5}, frozenset({"n1", "n2"})),
    )
    assert (found.observes_only, found.unreachable, found.not_ready, found.certificate_ends) == (True, "", "", None)


def test_quotas_of_namespaces_are_read() -> None:
    def get(path: str) -> Answer:
        namespace = path.removeprefix("/v1/namespaces/").removesuffix("/quota")
        if namespace == path:
            return WELL[path.partition("?")[0]]
        waiting = {"few": 0, "many": 7}
        if namespace not in waiting:
            return Answer(403, {"detail": "not yours"})
        return Answer(200, {"waiting_kinds": {"used": 5, "limit": 5, "waiting": waiting[namespace]}})

    found, unread = read_service(ADDRESS, get, ["few", "many"])
    assert (found.kinds_beyond, unread) == ({"many": (5, 7)}, {})
    found, unread = read_service(ADDRESS, get, ["many", "other"])
    assert (found.kinds_beyond, unread) == ({"many": (5, 7)}, {Part.QUOTAS: "other: 403: not yours"})


def test_what_it_cannot_read_and_what_it_does_meanwhile_are_read() -> None:
    loss = {"seconds": 95.4, "why": "forbidden", "meanwhile": "no gang preempts"}
    ready = {"status": "ok", "without": ["jobs"], "lost": {"poddisruptionbudgets": loss}}
    found, _ = read_service(ADDRESS, asked(readyz=Answer(200, ready)))
    assert found.without == ("jobs",)
    assert found.lost == {"poddisruptionbudgets": "for 95 s (forbidden): until it can, no gang preempts"}


def test_over_https_the_end_of_its_certificate_is_read() -> None:
    ends = datetime(2030, 1, 2, tzinfo=UTC)
    issued = trustme.CA().issue_cert("127.0.0.1", not_after=ends)
    pem = issued.cert_chain_pems[0].bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    found, _ = read_service(ADDRESS, asked(version=Answer(200, {"version": "9.9"}, der)))
    assert found.certificate_ends == ends


def test_nobody_there_is_told_and_nothing_is_known() -> None:
    def get(path: str) -> Answer:
        raise NobodyThere("connection refused")

    found, unread = read_service(ADDRESS, get)
    assert found.unreachable == "connection refused"
    assert set(unread) == set(PARTS)


@pytest.mark.parametrize("answer", [Answer(404, {}), Answer(200, {}), Answer(200, {"version": 3})])
def test_somebody_else_who_answers_is_no_service(answer: Answer) -> None:
    found, unread = read_service(ADDRESS, asked(version=answer))
    assert "not an Escher service" in found.unreachable
    assert set(unread) == set(PARTS)


def test_before_it_has_read_the_cluster_it_is_not_ready_and_what_it_does_not_say_is_not_known() -> None:
    not_yet = Answer(503, {"detail": "the cluster has not been read"})
    found, unread = read_service(ADDRESS, asked(readyz=not_yet, safety_switches=not_yet, cluster_state=not_yet))
    assert found.not_ready == "503: the cluster has not been read"
    assert unread == {
        Part.SAFETY_SWITCHES: "503: the cluster has not been read",
        Part.ITS_NODES: "503: the cluster has not been read",
    }


def test_what_it_refuses_to_say_is_told() -> None:
    _, unread = read_service(ADDRESS, asked(safety_switches=Answer(401, {})))
    assert unread == {Part.SAFETY_SWITCHES: "it answers 401"}
