"""The chart on a real control plane, from installation to removal. There is no container runtime: a stand-in for
kubelets runs the pods' processes as their manifests say, and one for kube-proxy leads to the replica that leads."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.shipped import versions
from extender.shipped.progress import Progress
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries, components
from loadtests.history.control_plane import dumped
from loadtests.history.dumps import Dump, differences
from loadtests.shared.pods import EXTENDER, pod
from tests.controlplane.deadline import eventually
from tests.deploy import schemas
from tests.deploy.installed import Installed
from tests.deploy.manifests import KUSTOMIZE, NAME, NAMESPACE, ROOT, Object, objects, one
from tests.deploy.rendering import rendered
from tests.deploy.tools import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

_CERT_MANAGER, _PROMETHEUS = "cert-manager.io", "monitoring.coreos.com"
NOT_OF_KUBERNETES = {
    **dict.fromkeys(("Certificate", "Issuer"), _CERT_MANAGER),
    **dict.fromkeys(("PrometheusRule", "ServiceMonitor"), _PROMETHEUS),
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PAGE = (ROOT / "docs" / "install.md").read_text()
HOLDS: dict[str, Any] = {"escher.dev/default.data": 1}
PODS = "/api/v1/namespaces/default/pods"
KUBECTL = Path(sys.executable).with_name("kubectl")


REGISTRY = "registry.invalid"

OF_KUSTOMIZE = pytest.mark.skipif(
    not versions.chosen().marks_by_default, reason="its files have MutatingAdmissionPolicies v1: docs/upgrade.md"
)


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """With nothing of Escher in it: no kinds, no policy, no service, no scheduler that would call one. The kinds of
    cert-manager and of the Prometheus operator are there by name; nobody does anything about them."""
    with RealCluster.start(nodes=4, service=False, marks=False) as started:
        started.stop_component("kube-scheduler")
        for definition in started.admin.list_all(DEFINITIONS):
            path = f"{DEFINITIONS}/{definition['metadata']['name']}"
            started.admin.delete(path)
            eventually(lambda path=path: gone(started, path), what=path)  # type: ignore[misc]
        started.admin.delete(f"/api/v1/namespaces/{NAMESPACE}")
        eventually(lambda: gone(started, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")
        for kind, group in NOT_OF_KUBERNETES.items():
            started.admin.post(DEFINITIONS, by_name_alone(kind, group))
        yield started


def by_name_alone(kind: str, group: str) -> Object:
    """The definition of a kind of others, which takes everything."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def typed(cluster: RealCluster, line: str, *more: str, folder: Path, refused: bool = False) -> str:
    """What the page says to type has been typed, with more words behind it: it has succeeded, unless it was to be
    refused, and printed this.

    `line`: how the line begins; the first of docs/install.md is meant that does, if none is just that.
    """
    found = re.search(rf"^    ({re.escape(line)})$", PAGE, re.MULTILINE)
    found = found or re.search(rf"^    ({re.escape(line)}.*)$", PAGE, re.MULTILINE)
    assert found, line
    programs = folder / "programs"
    if not programs.is_dir():
        programs.mkdir()
        (programs / "helm").symlink_to(tool("helm"))
        (programs / "kubectl").symlink_to(KUBECTL)
        (programs / "escher").write_text(f'#!/bin/sh\nexec {sys.executable} -m extender "$@"\n')
        (programs / "escher").chmod(0o755)
    environment = {
        **os.environ,
        **components.import_path(),
        "PATH": f"{programs}:/usr/bin:/bin",
        "KUBECONFIG": str(cluster.kubeconfig),
        "REGISTRY": REGISTRY,
        "CONTROL_PLANE": "192.0.2.0/24",
    }
    command = " ".join([found[1], *more])
    ended = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (ended.returncode != 0) is refused, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stderr if refused else ended.stdout


def gone(cluster: RealCluster, path: str) -> bool:
    try:
        cluster.admin.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def kubectl(cluster: RealCluster, *words: str) -> str:
    """What it printed: it has succeeded."""
    said = [str(KUBECTL), "--kubeconfig", str(cluster.kubeconfig), *words]
    ended = subprocess.run(said, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


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


MADE_HERE = {
    *(f"{PODS}/train-{number}" for number in range(3)),
    *(f"{PODS}/{name}-{number}" for name in ("renewed", "after", "pair") for number in range(2)),
    *(f"{PODS}/{name}" for name in ("holder", "behind", "anybody")),
    *(f"/api/v1/namespaces/default/serviceaccounts/{name}" for name in ("viewer", "stranger")),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/viewer",
}
"""What the test itself has made beside the installation, and is not for anybody to remove."""


def everything_of_ours(cluster: RealCluster) -> set[str]:
    """What bears our name, of all kinds that there are; Events end by themselves."""
    kinds = kubectl(cluster, "api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "componentstatuses"))]
    listed = kubectl(cluster, "get", ",".join(kinds), "--all-namespaces", "--output=name", "--ignore-not-found")
    return {each for each in listed.split() if "escher" in each and not each.startswith("namespace/")}


# -- before anything is installed ------------------------------------------------------------------------------------


@OF_KUSTOMIZE
def test_every_object_is_as_the_api_server_has_its_kind(cluster: RealCluster, tmp_path: Path) -> None:
    files = sorted(KUSTOMIZE.rglob("objects.yaml"))
    there = [each for file in files for each in objects(file.read_text())]
    told = conform(cluster, tmp_path, files, there)
    assert [each["msg"] for each in told.get("resources", [])] == []
    assert told["summary"]["skipped"] == len([each for each in there if each["kind"] in NOT_OF_KUBERNETES])
    assert told["summary"]["valid"] == len(there) - told["summary"]["skipped"] > 30


def test_a_field_that_there_is_not_would_be_noticed(cluster: RealCluster, tmp_path: Path) -> None:
    wrong = one(objects((KUSTOMIZE / "base" / "objects.yaml").read_text()), "Deployment", NAME)
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(wrong))
    [complaint] = conform(cluster, tmp_path, [file], [wrong])["resources"]
    assert "readinesProbe" in complaint["msg"]


def conform(cluster: RealCluster, folder: Path, files: list[Path], there: list[Object]) -> Any:
    """What kubeconform says of the files, by the schemas of this API server."""
    where = schemas.write(cluster.admin, folder, there)
    skipped = ",".join(sorted(NOT_OF_KUBERNETES))
    said = ["-strict", "-schema-location", where, "-skip", skipped, "-output", "json", "-summary", *map(str, files)]
    ended = subprocess.run([tool("kubeconform"), *said], capture_output=True, text=True, check=False)
    return json.loads(ended.stdout)


@pytest.mark.older
def test_what_the_chart_comes_to_for_this_version_of_kubernetes_is_taken_in_a_dry_run(
    cluster: RealCluster, tmp_path: Path
) -> None:
    version, kubernetes = cluster.admin.get("/version")["gitVersion"], versions.chosen()
    assert version == binaries.kubernetes_version(kubernetes)
    there = rendered(kubernetes=version)
    assert ("MutatingAdmissionPolicy" in {each["kind"] for each in there}) is kubernetes.marks_by_default
    file = tmp_path / "rendered.json"
    file.write_text("\n".join(map(json.dumps, there)))
    # A dry run finds no namespace that only a dry run has made.
    kubectl(cluster, "create", "namespace", NAMESPACE)
    kubectl(cluster, "apply", "--dry-run=server", "--filename", str(file))
    kubectl(cluster, "delete", "namespace", NAMESPACE)


@OF_KUSTOMIZE
def test_by_kustomize_it_is_taken_in_a_dry_run_and_then_for_real_and_goes_again(
    cluster: RealCluster, tmp_path: Path
) -> None:
    before = everything_of_ours(cluster)
    overlay = "kubectl apply -k deploy/kustomize/overlays/second-scheduler"
    # A dry run finds no namespace that only a dry run has made.
    kubectl(cluster, "create", "namespace", NAMESPACE)
    typed(cluster, overlay, "--dry-run=server", folder=tmp_path)
    assert everything_of_ours(cluster) == before
    typed(cluster, overlay, folder=tmp_path)
    assert everything_of_ours(cluster) > before
    kubectl(cluster, "apply", "--dry-run=server", "-k", str(KUSTOMIZE / "overlays" / "default-scheduler"))
    typed(cluster, "kubectl delete -k deploy/kustomize/overlays", folder=tmp_path)
    eventually(lambda: gone(cluster, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")
    assert everything_of_ours(cluster) == before
    typed(cluster, "kubectl apply -k deploy/kustomize/cleanup", folder=tmp_path)
    [job] = eventually(lambda: cleanup_pods(cluster), within=60, what="the Job's pod")
    play_cleanup(cluster, Installed(cluster, tmp_path), job)
    typed(cluster, "kubectl --namespace escher-system wait", folder=tmp_path)
    typed(cluster, "kubectl delete -k deploy/kustomize/cleanup", folder=tmp_path)
    eventually(lambda: gone(cluster, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")
    assert everything_of_ours(cluster) == before


# -- a life ----------------------------------------------------------------------------------------------------------


def token_of(cluster: RealCluster, account: str) -> str:
    """A service account of the namespace default, and a token of it."""
    root = "/api/v1/namespaces/default/serviceaccounts"
    cluster.admin.post(root, {"metadata": {"name": account}})
    answer = cluster.admin.post(f"{root}/{account}/token", {"spec": {"expirationSeconds": 3600}})
    token: str = answer["status"]["token"]
    return token


def bound(cluster: RealCluster, *names: str) -> bool:
    return all(cluster.admin.get(f"{PODS}/{name}")["spec"].get("nodeName") for name in names)


def test_installed_used_and_struck_upgraded_and_removed_it_leaves_nothing(
    cluster: RealCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    found_at_first = dumped(cluster.admin)
    before, of_ours, refused = statuses(cluster), everything_of_ours(cluster), refused_calls(cluster)
    install = "helm install escher deploy/chart"
    typed(cluster, install, "--dry-run=server", folder=tmp_path)
    assert everything_of_ours(cluster) == of_ours
    typed(cluster, install, folder=tmp_path)
    installed = Installed(cluster, tmp_path)
    eventually(lambda: not gone(cluster, "/apis/escher.dev/v1alpha1/ephemeralresources"), what="the kinds served")
    with installed.serving():
        assert len(installed.replicas) == 2
        # Replicas are ready before one of them leads.
        slices = partial(typed, cluster, "kubectl --namespace escher-system get endpointslices", folder=tmp_path)
        eventually(lambda: f"{NAME}-leader" in slices(), what="the leader's EndpointSlice")
        with installed.scheduling() as scheduler:
            _place_a_gang_and_a_holder(cluster)
            assert any("escher.dev/default.data" in each["capacity"] for each in statuses(cluster).values())
            _ask_the_management_api(cluster, installed)
            lease = cluster.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}-scheduler")
            assert lease["spec"]["holderIdentity"]
            assert "forbidden" not in installed.log()
            assert "forbidden" not in scheduler.log()
            assert refused_calls(cluster) == refused, "somebody lacks a permission"
        _a_second_is_refused(cluster, tmp_path)
        _replace_certificates_and_authority(cluster, installed, tmp_path)
        with installed.scheduling():
            _place_a_gang(cluster, "renewed")
            seconds = installed.kill_the_leader()
            record_property("no verb answered", f"for {seconds:.2f} s after SIGKILL")
            _place_a_gang(cluster, "after")
            installed.come_back()
        _by_the_scheduler_of_a_kubeadm_cluster(cluster, installed, tmp_path)
        _upgrade(cluster, installed, tmp_path)
        assert refused_calls(cluster) == refused, "somebody lacks a permission"
    _switch_leader_election_off_and_not_on(cluster, tmp_path)
    _uninstall(cluster, installed, tmp_path)
    assert "nothing" in typed(cluster, "escher cleanup", folder=tmp_path)
    typed(cluster, "escher cleanup --yes", folder=tmp_path)
    assert statuses(cluster) == before
    assert everything_of_ours(cluster) == of_ours
    assert bound(cluster, "train-0", "train-1", "train-2", "holder"), "what ran goes on"
    waits = cluster.admin.get(f"{PODS}/behind")
    assert "schedulingGates" not in waits["spec"]
    _is_as_it_was(cluster, found_at_first)


def _is_as_it_was(cluster: RealCluster, before: Dump) -> None:
    """All objects of all kinds are as they were before, and what the test has made is there."""
    made = {f"{path}: was not there before" for path in MADE_HERE}
    left: set[str] = set()

    def as_found() -> bool:
        left.clear()
        left.update(set(differences(before, dumped(cluster.admin), {})) ^ made)
        return not left

    try:
        # Controllers take away what was made of what is gone: rules of aggregated roles, groups of kinds.
        eventually(as_found, what="the cluster as it was found")
    except AssertionError as error:
        raise AssertionError(f"{error}: {'; '.join(sorted(left)[:8])}") from None


def _a_second_is_refused(cluster: RealCluster, folder: Path) -> None:
    """Another release is, whatever it leaves out; and nothing is cleaned up while the first is there."""
    images = f"image.registry={REGISTRY},scheduler.image.registry={REGISTRY}"
    second = [tool("helm"), "install", "second", str(ROOT / "deploy" / "chart"), "--namespace", "elsewhere"]
    for more in ("", ",crds.install=false,markPods=false,authorization=none"):
        refused = failed(cluster, [*second, "--create-namespace", "--set", images + more])
        assert f"Escher is installed in this cluster: Deployment {NAME} in namespace {NAMESPACE}" in refused
    assert gone(cluster, "/apis/apps/v1/namespaces/elsewhere/deployments/second")
    resources = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
    said = failed(cluster, [sys.executable, "-m", "extender", "cleanup", "--yes"])
    assert f"the service is installed: Deployment {NAMESPACE}/{NAME}" in said
    assert cluster.admin.list_all(resources)
    # So does the Job of the other, were it there, and ends well.
    typed(cluster, "escher cleanup --yes", "--unless-installed", folder=folder)
    assert cluster.admin.list_all(resources)


def failed(cluster: RealCluster, command: list[str]) -> str:
    """What the command said: it has failed."""
    environment = {**os.environ, **components.import_path(), "KUBECONFIG": str(cluster.kubeconfig)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 1, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def _place_a_gang(cluster: RealCluster, name: str) -> None:
    """Of two."""
    for number in range(2):
        cluster.admin.post(PODS, pod(f"{name}-{number}", EXTENDER, gang=name, quorum=2))
    eventually(lambda: bound(cluster, f"{name}-0", f"{name}-1"), within=60, what=f"gang {name} bound")


def _replace_certificates_and_authority(cluster: RealCluster, installed: Installed, folder: Path) -> None:
    """The service goes on, and shows the new one; the scheduler is to be started anew, for it reads the authority then
    alone, and the chart rolls it."""
    templates = [installed.template("apps/v1", f"deployments/{NAME}{suffix}") for suffix in ("", "-scheduler")]
    typed(cluster, "kubectl --namespace escher-system delete secret", folder=folder)
    typed(cluster, "helm upgrade escher deploy/chart --namespace escher-system --reuse-values", folder=folder)
    for replica in installed.replicas.values():
        replica.mount()
    wanted = installed.secret(f"{NAME}-tls")["tls.crt"]
    eventually(lambda: installed.all_show(wanted), what="the new certificate shown")
    assert all(each.runs for each in installed.replicas.values())
    rolled = [installed.template("apps/v1", f"deployments/{NAME}{suffix}") for suffix in ("", "-scheduler")]
    assert [new != old for new, old in zip(rolled, templates, strict=True)] == [False, True]


def _switch_leader_election_off_and_not_on(cluster: RealCluster, folder: Path) -> None:
    """Where a service without leader election may run, none with it is put beside it: neither by helm, which can look,
    nor by whoever cannot."""
    upgrade = "helm upgrade escher deploy/chart --namespace escher-system --reuse-values"
    stop = "kubectl --namespace escher-system delete deployment escher --cascade=foreground"
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
    typed(cluster, stop, folder=folder)
    assert gone(cluster, path)
    typed(cluster, upgrade, "--set leaderElection.enabled=false", folder=folder)
    before = cluster.admin.get(path)["spec"]
    assert before["strategy"] == {"type": "Recreate"}
    said = typed(cluster, upgrade, "--set leaderElection.enabled=true", folder=folder, refused=True)
    assert stop in said
    with_it = one(objects((KUSTOMIZE / "base" / "objects.yaml").read_text()), "Deployment", NAME)
    with pytest.raises(ApiError, match="immutable"):
        cluster.admin.patch(path, {"spec": with_it["spec"]})
    assert cluster.admin.get(path)["spec"] == before


def _upgrade(cluster: RealCluster, installed: Installed, folder: Path) -> None:
    """With other values, of which the service takes one while it runs."""
    secrets = [installed.secret(name) for name in (f"{NAME}-tls", f"{NAME}-scheduler-tls")]
    before = installed.template("apps/v1", f"deployments/{NAME}")
    typed(cluster, "helm upgrade escher deploy/chart", folder=folder)
    typed(
        cluster,
        "helm upgrade escher deploy/chart --namespace escher-system --reuse-values --set monitoring",
        folder=folder,
    )
    for replica in installed.replicas.values():
        replica.mount()
    leader = installed.replicas[installed.leader]
    eventually(lambda: "the safety switches were changed" in leader.log(), what="the setting in force")
    assert installed.template("apps/v1", f"deployments/{NAME}") == before
    assert [installed.secret(name) for name in (f"{NAME}-tls", f"{NAME}-scheduler-tls")] == secrets


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
    cluster.admin.post(PODS, pod("holder", EXTENDER, **HOLDS))
    cluster.admin.post(PODS, pod("behind", EXTENDER, gang="behind", quorum=2, gated=True))
    names = ("train-0", "train-1", "train-2", "holder")
    eventually(lambda: bound(cluster, *names), within=60, what="gang and holder bound")
    [marked] = cluster.admin.get(f"{PODS}/train-0")["spec"]["containers"]
    has_mark = "escher.dev/managed" in marked["resources"]["requests"]
    assert has_mark is versions.chosen().marks_by_default, "the chart's policy marks it, where the chart has one"


def _by_the_scheduler_of_a_kubeadm_cluster(cluster: RealCluster, installed: Installed, folder: Path) -> None:
    """scheduler-config/kubeadm.yaml in place of the second scheduler and of the cluster's own. Of the file only what
    depends on the place is changed; certificates are those of the Secret, as the page says."""
    secret = installed.secret(f"{NAME}-scheduler-tls")
    for name, content in secret.items():
        (folder / name).write_bytes(base64.b64decode(content))
    text = (ROOT / "scheduler-config" / "kubeadm.yaml").read_text()
    instead = {
        "/etc/kubernetes/scheduler.conf": str(cluster.kubeconfig_of("kube-scheduler")),
        "/etc/kubernetes/escher/": f"{folder}/",
        "https://10.96.0.200:8443": installed.url,
    }
    for old, new in instead.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "kubeadm.yaml"
    file.write_text(text)
    program = str(binaries.build(Progress()) / "kube-scheduler")
    said = [program, f"--config={file}", f"--secure-port={installed.ports['scheduler']}", "--bind-address=127.0.0.1"]
    cluster.stop_component("kube-scheduler-resources")
    with (folder / "kubeadm.log").open("wb") as log, subprocess.Popen(said, stdout=log, stderr=log) as scheduler:
        try:
            _place_a_gang(cluster, "pair")
            with installed.away():
                cluster.admin.post(PODS, pod("anybody", "default-scheduler"))
                eventually(lambda: bound(cluster, "anybody"), within=60, what="a pod without the mark bound")
        finally:
            scheduler.terminate()
    cluster.start_component("kube-scheduler-resources")


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


def cleanup_pods(cluster: RealCluster) -> list[Object]:
    """The pods of the Job that cleans up."""
    label = "app.kubernetes.io/component=cleanup"
    found: list[Object] = cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=label)["items"]
    return found


def play_cleanup(cluster: RealCluster, installed: Installed, job: Object) -> None:
    """Its process has run, and its pod says so."""
    cleanup = installed.container("batch/v1", f"jobs/{NAME}-cleanup")
    cleanup.run("--kubeconfig", str(cleanup.kubeconfig))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{job['metadata']['name']}"
    eventually(lambda: cluster.admin.get(path)["status"].get("phase") == "Running", what="it runs")
    cluster.admin.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})


def _uninstall(cluster: RealCluster, installed: Installed, folder: Path) -> None:
    """By helm, whose hook makes a Job and waits for it; the Job's pod is played here."""
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(typed, cluster, "helm uninstall", folder=folder)
        [job] = eventually(lambda: cleanup_pods(cluster), within=60, what="the Job's pod")
        play_cleanup(cluster, installed, job)
        running.result()
    cluster.admin.delete(f"/api/v1/namespaces/{NAMESPACE}")
    eventually(lambda: gone(cluster, f"/api/v1/namespaces/{NAMESPACE}"), within=60, what="the namespace gone")
