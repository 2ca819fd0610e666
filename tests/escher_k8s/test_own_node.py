"""A node_spec of None: the caller's own node, as its surroundings tell, or the service of its pod; nobody guesses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from escher_k8s import Claim, Escher, Invalid, Owner, OwnNodeUnknown, SetResource, Unavailable
from kubesim.kinds import POD
from tests.escher_k8s.conftest import Client, Stage

SAYS_NODE = "fieldPath: spec.nodeName"


@pytest.fixture
def in_pod(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.write_text("team-a\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")


@pytest.fixture
def pods(stage: Stage) -> Iterator[None]:
    """`there` runs on node-2, `waiting` nowhere."""
    for name, node in (("there", {"nodeName": "node-2"}), ("waiting", {"nodeSelector": {"no": "where"}})):
        stage.create(
            {
                "metadata": {"name": name, "namespace": "team-a"},
                "spec": {"schedulerName": "escher", "containers": [{"name": "main", "image": "x"}], **node},
            }
        )
    stage.pass_time(1)
    yield
    for name in ("there", "waiting"):
        stage.run(stage.simulation.ask("DELETE", f"{POD.path('team-a')}/{name}"))
    stage.pass_time(1)


def where(client: Client, **options: Any) -> Any:
    return client.ask(lambda escher: escher.set_resource("own", 1, dry_run=True), **options).nodes


@pytest.mark.usefixtures("in_pod", "pods")
def test_the_first_that_tells_is_believed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "there")
    assert where(client) == {"node-2": 1}
    monkeypatch.setenv("NODE_NAME", "node-1")
    assert where(client) == {"node-1": 1}
    monkeypatch.setenv("ESCHER_NODE", "node-3")
    assert where(client) == {"node-3": 1}
    assert where(client, node="node-1") == {"node-1": 1}


@pytest.mark.usefixtures("pods")
def test_what_the_downward_api_says_of_the_pod_goes_before_what_else_is_there(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "team-a")
    monkeypatch.setenv("POD_NAME", "there")
    monkeypatch.setenv("HOSTNAME", "another")
    assert where(client, namespace="default") == {"node-2": 1}


@pytest.mark.usefixtures("in_pod", "pods")
@pytest.mark.parametrize(
    ("hostname", "why"),
    [
        ("node-2", r"\$HOSTNAME is 'node-2', and the service knows no such pod in namespace 'team-a'"),
        ("waiting", "does not know where pod team-a/waiting is bound"),
        (None, r"neither \$POD_NAME nor \$HOSTNAME is set"),
    ],
)
def test_who_is_no_pod_that_runs_there_is_told_what_to_add(
    client: Client, monkeypatch: pytest.MonkeyPatch, hostname: str | None, why: str
) -> None:
    if hostname is not None:
        monkeypatch.setenv("HOSTNAME", hostname)
    with pytest.raises(OwnNodeUnknown, match=why) as unknown:
        where(client)
    assert SAYS_NODE in str(unknown.value)


def test_a_pod_that_does_not_know_its_namespace_is_told_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOSTNAME", "there")
    with pytest.raises(OwnNodeUnknown, match="namespace is not known"):
        where(client)


def test_outside_a_pod_the_service_refuses(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "there")
    with pytest.raises(Invalid, match="the caller's node is unknown"):
        where(client)


@pytest.mark.usefixtures("in_pod", "pods")
def test_operations_of_a_transaction_and_what_is_held_are_on_the_own_node_too(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", "there")
    operations = [SetResource("own", 2), Claim("agent", "node-2", {"escher.dev/team-a.own": 1}, 60)]
    assert client.ask(lambda escher: escher.transact(operations, dry_run=True)).committed


class Counting:
    """A service of which pod `there` is on node-2, that says how often it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.asked: list[str] = []
        self._status = status

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path.rpartition("/v1/")[2])
        if request.method == "GET":
            known = {"subject": "s", "waits": False, "summary": "", "groups": [], "remedies": [], "node": "node-2"}
            return httpx.Response(self._status, json=known)
        made = {"namespace": "team-a", "name": "own", "key": "k", "capacity": 1, "shared": False, "nodes": {}}
        return httpx.Response(200, json={**made, "version": "1"})


@pytest.mark.usefixtures("in_pod")
def test_a_pod_never_moves_and_is_asked_about_once_and_only_where_its_node_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTNAME", "there")
    service = Counting()
    with Escher(namespace="team-a", transport=httpx.MockTransport(service)) as escher:
        escher.set_resource("own", 1, node_spec={})
        escher.set_resource("own", 1, owner=Owner("there", "uid-1"))
        assert len(service.asked) == 2
        escher.set_resource("own", 1)
        escher.set_resource("own", 2)
    assert service.asked[2:] == [
        "namespaces/team-a/pods/there/explain",
        *["namespaces/team-a/resources/own"] * 2,
    ]


@pytest.mark.usefixtures("in_pod")
def test_a_service_that_is_away_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "there")
    transport = httpx.MockTransport(Counting(status=503))
    with Escher(namespace="team-a", retry_for=0, transport=transport) as escher, pytest.raises(Unavailable):
        escher.set_resource("own", 1)
