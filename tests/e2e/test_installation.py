"""The chart on a real control plane, from installation to removal. There is no container runtime: a stand-in for
kubelets runs the pods' processes as their manifests say."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.controlplane import ports
from extender.controlplane.api import ApiError
from extender.controlplane.clusters import RealCluster
from loadtests.pods import EXTENDER, pod
from tests.controlplane.deadline import eventually
from tests.deploy import schemas
from tests.deploy.kubelet import Container
from tests.deploy.manifests import CHART, KUSTOMIZE, NAME, NAMESPACE, Object, objects, one
from tests.deploy.tools import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NOT_OF_KUBERNETES = {"Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"}
IMAGES = ("--set", "image.registry=registry.invalid,scheduler.image.registry=registry.invalid")
PODS = "/api/v1/namespaces/default/pods"
KUBECTL = Path(sys.executable).with_name("kubectl")


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """With nothing of Escher in it: no kinds, no policy, no service, no scheduler that would call one."""
    with RealCluster.start(nodes=4, service=False, marks=False) as started:
        started.stop_component("kube-scheduler")
        for definition in started.admin.list_all("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
            started.admin.delete(path)
            eventually(lambda path=path: gone(started, path), what=path)  # type: ignore[misc]
        yield started


def gone(cluster: RealCluster, path: str) -> bool:
    try:
        cluster.admin.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def command(program: str | Path, cluster: RealCluster, *words: str) -> str:
    """What it printed: it has succeeded."""
    said = [str(program), "--kubeconfig", str(cluster.kubeconfig), *words]
    ended = subprocess.run(said, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def helm(cluster: RealCluster, *words: str) -> str:
    return command(tool("helm"), cluster, *words)


def refused_calls(cluster: RealCluster) -> dict[str, int]:
    """How often the API server has said 403, to whomever and for whatever."""
    found = re.findall(
        r'^apiserver_request_total\{([^}]*code="403"[^}]*)\} (\d+)', cluster.admin.text("/metrics"), re.M
    )
    return {labels: int(number) for labels, number in found}


def statuses(cluster: RealCluster) -> dict[str, Object]:
    """What each node says that it has."""
    nodes = cluster.admin.list_all("/api/v1/nodes")
    return {
        each["metadata"]["name"]: {key: each["status"][key] for key in ("capacity", "allocatable")} for each in nodes
    }


def everything_of_ours(cluster: RealCluster) -> set[str]:
    """What bears our name, of all kinds that there are; Events end by themselves."""
    kinds = command(KUBECTL, cluster, "api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "componentstatuses"))]
    listed = command(
        KUBECTL, cluster, "get", ",".join(kinds), "--all-namespaces", "--output=name", "--ignore-not-found"
    )
    return {each for each in listed.split() if "escher" in each and not each.startswith("namespace/")}


# -- before anything is installed ------------------------------------------------------------------------------------


def test_every_object_is_as_the_api_server_has_its_kind(cluster: RealCluster, tmp_path: Path) -> None:
    where = schemas.write(cluster.admin, tmp_path)
    files = [str(each) for each in sorted(KUSTOMIZE.rglob("objects.yaml"))]
    skipped = ",".join(sorted(NOT_OF_KUBERNETES))
    said = ["-strict", "-schema-location", where, "-skip", skipped, "-output", "json", "-summary", *files]
    ended = subprocess.run([tool("kubeconform"), *said], capture_output=True, text=True, check=False)
    told = json.loads(ended.stdout)
    assert [each["msg"] for each in told.get("resources", [])] == []
    assert ended.returncode == 0
    there = [each for file in files for each in objects(Path(file).read_text())]
    assert told["summary"]["skipped"] == len([each for each in there if each["kind"] in NOT_OF_KUBERNETES])
    assert told["summary"]["valid"] == len(there) - told["summary"]["skipped"]


def test_a_field_that_there_is_not_would_be_noticed(cluster: RealCluster, tmp_path: Path) -> None:
    where = schemas.write(cluster.admin, tmp_path)
    wrong = one(objects((KUSTOMIZE / "base" / "objects.yaml").read_text()), "Deployment", NAME)
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(wrong))
    said = ["-strict", "-schema-location", where, str(file)]
    ended = subprocess.run([tool("kubeconform"), *said], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "readinesProbe" in ended.stdout


def test_the_api_server_takes_everything_of_kustomize_in_a_dry_run_and_then_for_real(cluster: RealCluster) -> None:
    """But for what cert-manager makes: its kinds are not installed here."""
    folders = [KUSTOMIZE / "base", KUSTOMIZE / "components" / "second-scheduler"]
    files = [word for folder in folders for word in ("--filename", str(folder / "objects.yaml"))]
    before = everything_of_ours(cluster)
    # A dry run finds no namespace that only a dry run has made.
    command(KUBECTL, cluster, "create", "namespace", NAMESPACE)
    command(KUBECTL, cluster, "apply", "--dry-run=server", *files)
    assert everything_of_ours(cluster) == before
    command(KUBECTL, cluster, "apply", *files)
    assert everything_of_ours(cluster) > before
    command(KUBECTL, cluster, "delete", "--wait", *files)
    eventually(lambda: everything_of_ours(cluster) == before, within=60, what="everything gone")
    eventually(lambda: gone(cluster, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")


# -- a life ----------------------------------------------------------------------------------------------------------


class Installed:
    """What helm has installed, and its processes."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.ports = ports.choose(["service", "scheduler"])
        self.url = f"https://127.0.0.1:{self.ports['service']}"

    def container(self, kind: str, name: str) -> Container:
        template = self._cluster.admin.get(f"/apis/{kind}/namespaces/{NAMESPACE}/{name}")["spec"]["template"]
        instead = {
            "host: 0.0.0.0": "host: 127.0.0.1",
            "port: 8443": f"port: {self.ports['service']}",
            f"https://{NAME}.{NAMESPACE}.svc:8443": self.url,
            "--secure-port=10259": f"--secure-port={self.ports['scheduler']}",
        }
        return Container(self._cluster, NAMESPACE, template, self._folder / name.replace("/", "-"), instead)

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[Container, Container]]:
        service = self.container("apps/v1", f"deployments/{NAME}")
        scheduler = self.container("apps/v1", f"deployments/{NAME}-scheduler")
        # In a pod it finds all of this by itself.
        access = [f"--{each}-kubeconfig={scheduler.kubeconfig}" for each in ("authentication", "authorization")]
        with (
            service.running(self.ports["service"], "--kubeconfig", str(service.kubeconfig)),
            scheduler.running(self.ports["scheduler"], "--bind-address=127.0.0.1", *access),
        ):
            yield service, scheduler

    def secret(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self._cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")["data"]
        return found

    def ask(self, path: str, token: str | None) -> int:
        """The status that the management API answers to whoever shows this token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


def token_of(cluster: RealCluster, account: str) -> str:
    """A service account of the namespace default, and a token of it."""
    root = "/api/v1/namespaces/default/serviceaccounts"
    cluster.admin.post(root, {"metadata": {"name": account}})
    answer = cluster.admin.post(f"{root}/{account}/token", {"spec": {"expirationSeconds": 3600}})
    token: str = answer["status"]["token"]
    return token


def bound(cluster: RealCluster, *names: str) -> bool:
    return all(cluster.admin.get(f"{PODS}/{name}")["spec"].get("nodeName") for name in names)


def test_installed_used_upgraded_and_removed_it_leaves_nothing(cluster: RealCluster, tmp_path: Path) -> None:
    before, of_ours, refused = statuses(cluster), everything_of_ours(cluster), refused_calls(cluster)
    release = (NAME, str(CHART), "--namespace", NAMESPACE, *IMAGES)
    helm(cluster, "install", *release, "--create-namespace", "--dry-run=server")
    assert everything_of_ours(cluster) == of_ours
    helm(cluster, "install", *release, "--create-namespace")
    installed = Installed(cluster, tmp_path)
    eventually(lambda: not gone(cluster, "/apis/escher.dev/v1alpha1/ephemeralresources"), what="the kinds served")
    with installed.running() as (service, scheduler):
        _place_a_gang_and_a_holder(cluster)
        assert any("escher.dev/default.data" in each["capacity"] for each in statuses(cluster).values())
        _ask_the_management_api(cluster, installed)
        lease = cluster.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}-scheduler")
        assert lease["spec"]["holderIdentity"]
        assert "forbidden" not in service.log()
        assert "forbidden" not in scheduler.log()
    assert refused_calls(cluster) == refused, "somebody lacks a permission"
    secrets = [installed.secret(name) for name in (f"{NAME}-tls", f"{NAME}-scheduler-tls")]
    helm(cluster, "upgrade", *release, "--set", "settings.observe_only=true")
    assert [installed.secret(name) for name in (f"{NAME}-tls", f"{NAME}-scheduler-tls")] == secrets
    _uninstall(cluster, installed)
    assert statuses(cluster) == before
    assert everything_of_ours(cluster) == of_ours
    assert bound(cluster, "train-0", "train-1", "train-2", "holder"), "what ran goes on"
    waits = cluster.admin.get(f"{PODS}/behind")
    assert "schedulingGates" not in waits["spec"]


def _place_a_gang_and_a_holder(cluster: RealCluster) -> None:
    """A gang of three, a pod that holds what an application has set, and one that waits behind the gate."""
    resource: dict[str, Any] = {
        "apiVersion": "escher.dev/v1alpha1",
        "kind": "EphemeralResource",
        "metadata": {"name": "data"},
        "spec": {"nodes": {min(statuses(cluster)): 2}},
    }
    cluster.admin.post("/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources", resource)
    for number in range(3):
        cluster.admin.post(PODS, pod(f"train-{number}", EXTENDER, gang="train", quorum=3))
    cluster.admin.post(PODS, pod("holder", EXTENDER, **{"escher.dev/default.data": 1}))
    cluster.admin.post(PODS, pod("behind", EXTENDER, gang="behind", quorum=2, gated=True))
    names = ("train-0", "train-1", "train-2", "holder")
    eventually(lambda: bound(cluster, *names), within=60, what="gang and holder bound")
    [marked] = cluster.admin.get(f"{PODS}/train-0")["spec"]["containers"]
    assert "escher.dev/managed" in marked["resources"]["requests"], "the chart's policy has marked it"


def _ask_the_management_api(cluster: RealCluster, installed: Installed) -> None:
    """By RBAC with the chart's roles."""
    path = "/v1/namespaces/default/resources"
    viewer, stranger = token_of(cluster, "viewer"), token_of(cluster, "stranger")
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{NAME}-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
    }
    cluster.admin.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
    eventually(lambda: installed.ask(path, viewer) == 200, what="a viewer may see")
    assert installed.ask(path, stranger) == 403
    assert installed.ask(path, None) == 401
    assert installed.ask("/v1/namespaces/kube-system/resources", viewer) == 403


def _uninstall(cluster: RealCluster, installed: Installed) -> None:
    """By helm, whose hook makes a Job; its pod is played here."""
    said = [tool("helm"), "--kubeconfig", str(cluster.kubeconfig), "uninstall", NAME, "--namespace", NAMESPACE]
    with subprocess.Popen(said, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        label = "app.kubernetes.io/component=cleanup"
        [job] = eventually(
            lambda: cluster.admin.get(pods, labelSelector=label)["items"], within=60, what="the Job's pod"
        )
        cleanup = installed.container("batch/v1", f"jobs/{NAME}-cleanup")
        cleanup.run("--kubeconfig", str(cleanup.kubeconfig))
        name = job["metadata"]["name"]
        eventually(lambda: cluster.admin.get(f"{pods}/{name}")["status"].get("phase") == "Running", what="it runs")
        cluster.admin.patch(f"{pods}/{name}/status", {"status": {"phase": "Succeeded"}})
        told, _ = running.communicate(timeout=120)
    assert running.returncode == 0, told
    cluster.admin.delete(f"/api/v1/namespaces/{NAMESPACE}")
    eventually(lambda: gone(cluster, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")
