"""What lets the service in is replaced while it runs: a certificate, an authority, a service account's token."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from lab.controlplane import nodes
from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RESOURCE = "/v1/namespaces/default/resources/data"


class Wire:
    """Carries bytes to an API server, and is cut on demand: whoever used it has to connect again."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(2**16):
                sink.sendall(received)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for each in self._open:
            each.close()


@pytest.fixture
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """One of the test's own, for its keys are replaced; without the service yet."""
    with RealCluster.start(nodes=1, service=False) as started:
        yield started


@pytest.fixture
def wire(cluster: RealCluster) -> Iterator[Wire]:
    made = Wire(cluster.port("kube-apiserver"))
    yield made
    made.close()


@contextlib.contextmanager
def serving(cluster: RealCluster, server: str, authority: Path, user: dict[str, Any]) -> Iterator[Service]:
    """The service runs, let in by `user`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    cluster.kubeconfig_of("escher").write_text(yaml.safe_dump(config))
    cluster.start_component("service")
    pid = cluster.pids()["service"]
    service = Service(cluster.service_url)
    try:
        eventually(lambda: service.raw("GET", "/readyz").status_code == 200, within=60, what="the service ready")
        yield service
        assert cluster.pids()["service"] == pid, "the service is the one that was started"
    finally:
        service.close()
        cluster.stop_component("service")


def replace(file: Path, content: bytes) -> None:
    file.with_suffix(".new").write_bytes(content)
    file.with_suffix(".new").replace(file)


def shows(port: int, authority: bytes) -> bool:
    """Whether the API server is verified by that authority."""
    trust = ssl.create_default_context(cadata=authority.decode())
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with socket.create_connection(("127.0.0.1", port)) as raw:
        try:
            trust.wrap_socket(raw, server_hostname="localhost").close()
        except ssl.SSLCertVerificationError:
            return False
    return True


def set_resource(service: Service, capacity: int) -> int:
    body = {"capacity": capacity, "node_spec": "node-0"}
    return service.raw("PUT", RESOURCE, body).status_code


def test_the_service_goes_on_with_a_certificate_and_an_authority_that_replaced_those_it_began_with(
    cluster: RealCluster, wire: Wire, tmp_path: Path
) -> None:
    pki = cluster.kubeconfig_of("escher").parent
    ours, theirs = trustme.CA(), trustme.CA()
    old_authority = (pki / "ca.crt").read_bytes()
    replace(pki / "ca.crt", old_authority + ours.cert_pem.bytes())
    bundle, certificate = tmp_path / "ca.crt", tmp_path / "client.pem"
    bundle.write_bytes(old_authority)

    def issue(seconds: float) -> datetime:
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        made = ours.issue_cert(
            "escher.example.org", common_name="escher", organization_name="system:masters", not_after=ends
        )
        replace(certificate, made.private_key_and_cert_chain_pem.bytes())
        return ends

    # For as long as a slow machine may take to start the service.
    ends = issue(30)
    user = {"client-certificate": str(certificate), "client-key": str(certificate)}
    with serving(cluster, f"https://127.0.0.1:{wire.port}", bundle, user) as service:
        assert set_resource(service, 1) == 200
        while datetime.now(UTC) < ends:
            time.sleep(0.5)
        eventually(lambda: set_resource(service, 2) == 503, within=30, what="401 told as unavailable")
        ended = service.metrics()[("escher_credentials_end_timestamp_seconds", ())]
        assert abs(ended - ends.timestamp()) < 1
        issue(3600)
        assert set_resource(service, 3) == 200, "the next call shows the new certificate"

        wire.cut()
        cluster.create_nodes(nodes.plain(1, nodes.NodeShape(), start=1))
        eventually(lambda: "node-1" in service.cluster_state(), what="watches on with the new certificate")

        replace(bundle, old_authority + theirs.cert_pem.bytes())
        made = theirs.issue_cert("127.0.0.1", "localhost")
        (pki / "server.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        (pki / "server.key").write_bytes(made.private_key_pem.bytes())
        api = cluster.port("kube-apiserver")
        eventually(lambda: shows(api, theirs.cert_pem.bytes()), within=90, what="the API server's new certificate")
        wire.cut()
        eventually(lambda: set_resource(service, 4) == 200, what="a call that trusts the new authority")
        assert not shows(api, old_authority)


def test_the_service_goes_on_with_the_next_token_of_its_service_account(cluster: RealCluster, tmp_path: Path) -> None:
    api, namespace = cluster.admin, "/api/v1/namespaces/default"
    api.post(f"{namespace}/serviceaccounts", {"metadata": {"name": "escher"}})
    api.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "escher-may-all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "escher", "namespace": "default"}],
        },
    )
    token = tmp_path / "token"

    def issue(secret: str) -> None:
        """A token that is good for as long as there is that Secret."""
        made = api.post(f"{namespace}/secrets", {"metadata": {"name": secret}})
        bound = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": made["metadata"]["uid"]}
        spec = {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound}
        answer = api.post(f"{namespace}/serviceaccounts/escher/token", {"spec": spec})
        replace(token, answer["status"]["token"].encode())

    issue("first")
    authority = cluster.kubeconfig_of("escher").parent / "ca.crt"
    with serving(cluster, cluster.api_url, authority, {"tokenFile": str(token)}) as service:
        assert set_resource(service, 1) == 200
        api.delete(f"{namespace}/secrets/first")
        eventually(lambda: set_resource(service, 2) == 503, within=60, what="401 told as unavailable")
        issue("second")
        assert set_resource(service, 3) == 200, "the next call shows the new token"
        cluster.create_nodes(nodes.plain(1, nodes.NodeShape(), start=1))
        eventually(lambda: "node-1" in service.cluster_state(), what="watches on with the new token")
