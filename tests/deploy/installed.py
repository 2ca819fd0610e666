"""What is installed, and its processes: two replicas of the service behind one address, and a scheduler that calls it.

A forwarder stands in for kube-proxy, and leads to where the EndpointSlice of the leader says.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx

from lab.controlplane.api import ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import ports
from loadtests.failover.forwarder import Forwarder
from loadtests.shared.pods import pod
from tests.controlplane.deadline import eventually
from tests.deploy.kubelet import Container
from tests.deploy.manifests import NAME, NAMESPACE, Object

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{NAME}-leader"
_PATIENCE = 60.0
_REPLICAS = ("replica-1", "replica-2")
_PROBE = {
    "Pod": {**pod("probe"), "metadata": {"namespace": "default", "name": "probe", "uid": "probe"}},
    "Nodes": None,
    "NodeNames": ["nowhere"],
}


class Installed:
    """What helm, or kustomize, has installed in this cluster."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._started = 0
        self.ports = ports.choose(["service", "scheduler", *_REPLICAS])
        self.url = f"https://127.0.0.1:{self.ports['service']}"
        self.replicas: dict[str, Container] = {}
        """Those that run, by the names of their pods."""

    def template(self, kind: str, name: str) -> Object:
        found: Object = self._cluster.admin.get(f"/apis/{kind}/namespaces/{NAMESPACE}/{name}")["spec"]["template"]
        return found

    def container(self, kind: str, name: str, *, replica: str = _REPLICAS[0]) -> Container:
        instead = {
            "host: 0.0.0.0": "host: 127.0.0.1",
            "port: 8443": f"port: {self.ports[replica]}",
            f"https://{NAME}.{NAMESPACE}.svc:8443": self.url,
            "--secure-port=10259": f"--secure-port={self.ports['scheduler']}",
        }
        self._started += 1
        place = self._folder / f"{name.replace('/', '-')}-{self._started}"
        # An EndpointSlice may not have an address of the loopback.
        address = f"192.0.2.{self._started}"
        template = self.template(kind, name)
        return Container(self._cluster, NAMESPACE, template, place, instead, pod=replica, address=address)

    # -- the service

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """As many as the Deployment has run, and are ready; whoever calls the Service comes to the one that leads."""
        wanted = self._cluster.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")["spec"]["replicas"]
        with contextlib.ExitStack() as stack:
            for name in _REPLICAS[:wanted]:
                replica = self.replicas[name] = self.container("apps/v1", f"deployments/{NAME}", replica=name)
                said = ("--kubeconfig", str(replica.kubeconfig))
                stack.enter_context(replica.running(self.ports[name], *said))
            self._begin_to_forward()
            # Not who forwards now: another may by then.
            stack.callback(lambda: self._stop_forwarding())
            yield

    def _begin_to_forward(self) -> None:
        forwarder = Forwarder(self.ports["service"], self.leads_to)
        forwarder.start()
        self._stop_forwarding = forwarder.stop

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Nobody is there for who calls the Service."""
        self._stop_forwarding()
        try:
            yield
        finally:
            self._begin_to_forward()

    def leads_to(self) -> int | None:
        """The port to which the EndpointSlice leads."""
        try:
            return int(self._cluster.admin.get(SLICE)["ports"][0]["port"])
        except ApiError:
            return None

    @property
    def leader(self) -> str:
        """The pod that holds the Lease."""
        holder = self._cluster.admin.get(LEASE)["spec"].get("holderIdentity") or ""
        return next((name for name in self.replicas if holder.startswith(f"{name}-")), "")

    def kill_the_leader(self) -> float:
        """By SIGKILL; another leads. Answers after how many seconds a verb was answered again."""
        struck = self.leader
        self.replicas[struck].kill()
        began = time.monotonic()
        eventually(self.answers_verbs, within=_PATIENCE, what="a verb answered")
        answered = time.monotonic() - began
        assert self.leader not in ("", struck)
        return answered

    def come_back(self) -> None:
        """Whoever was killed runs again, and could take over."""
        for name, replica in self.replicas.items():
            if not replica.runs:
                replica.come_back(self.ports[name])

    def log(self) -> str:
        """Of all replicas."""
        return "".join(each.log() for each in self.replicas.values())

    # -- whoever calls it

    @contextlib.contextmanager
    def scheduling(self) -> Iterator[Container]:
        """The second scheduler runs."""
        scheduler = self.container("apps/v1", f"deployments/{NAME}-scheduler")
        # In a pod it finds all of this by itself.
        access = [f"--{each}-kubeconfig={scheduler.kubeconfig}" for each in ("authentication", "authorization")]
        with scheduler.running(self.ports["scheduler"], "--bind-address=127.0.0.1", *access):
            yield scheduler

    def secret(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self._cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")["data"]
        return found

    def answers_verbs(self) -> bool:
        """Whether a verb is answered through the one address, over mutual TLS with the scheduler's certificate."""
        with contextlib.suppress(httpx.TransportError), self._as_scheduler() as client:
            # About a node that is nowhere: the answer is no, and it is one.
            return client.post("/scheduler/filter", json=_PROBE).status_code == 200
        return False

    def _as_scheduler(self) -> httpx.Client:
        secret = self.secret(f"{NAME}-scheduler-tls")
        place = self._folder / "shown"
        place.mkdir(exist_ok=True)
        for name, content in secret.items():
            (place / name).write_bytes(base64.b64decode(content))
        context = ssl.create_default_context(cafile=place / "ca.crt")
        # The name is the Service's, and the address is not.
        context.check_hostname = False
        context.load_cert_chain(place / "tls.crt", place / "tls.key")
        return httpx.Client(base_url=self.url, verify=context, timeout=5, trust_env=False)

    def all_show(self, certificate: str) -> bool:
        """Whether this, as a Secret has it, is what each replica shows."""
        wanted = ssl.PEM_cert_to_DER_cert(base64.b64decode(certificate).decode())
        shown = [ssl.get_server_certificate(("127.0.0.1", self.ports[name])) for name in self.replicas]
        return [ssl.PEM_cert_to_DER_cert(each) for each in shown] == [wanted] * len(shown)

    def ask(self, path: str, token: str | None) -> int:
        """The status that the management API answers to whoever shows this token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
