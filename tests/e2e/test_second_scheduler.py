"""The schedulers of scheduler-config/ beside a cluster's own, as docs/operations.md says: lease, port, permissions."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.shipped import places
from extender.shipped.progress import Progress
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries, ports
from loadtests.shared.pods import EXTENDER, PURE, pod
from tests.controlplane.deadline import eventually
from tests.kube.kubeconfigs import kubeconfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
CONFIGS = {"escher.yaml": ("escher-scheduler", EXTENDER), "escher-resources.yaml": ("escher-resources-scheduler", PURE)}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
}


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """Without schedulers of ours, but with what they may do."""
    with RealCluster.start(nodes=2) as started:
        for component in ("kube-scheduler", "kube-scheduler-resources"):
            started.stop_component(component)
        for each in yaml.safe_load_all((places.shipped("deploy") / "schedulers" / "rbac.yaml").read_text()):
            path = _PATHS[each["kind"]].format(each["metadata"].get("namespace"))
            started.admin.post(path, each)
        yield started


def by_service_account(cluster: RealCluster, tmp_path: Path) -> Path:
    """As in a pod."""
    path = "/api/v1/namespaces/kube-system/serviceaccounts/escher-scheduler/token"
    token = cluster.admin.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    return written(tmp_path, cluster, {"token": token})


def by_the_clusters_own(cluster: RealCluster, tmp_path: Path) -> Path:
    """As on a machine of the control plane, with what that user may do and no more."""
    [admin] = yaml.safe_load(cluster.kubeconfig.read_text())["users"]
    user = {**admin["user"], "as": "system:kube-scheduler", "as-groups": ["system:authenticated"]}
    return written(tmp_path, cluster, user)


def written(folder: Path, cluster: RealCluster, user: dict[str, Any]) -> Path:
    authority = cluster.kubeconfig_of("kube-scheduler").parent / "ca.crt"
    return kubeconfig(folder, user, **{"server": cluster.api_url, "certificate-authority": str(authority)})


@contextlib.contextmanager
def scheduling(cluster: RealCluster, config: str, access: Path, port: int, folder: Path) -> Iterator[None]:
    """That kube-scheduler runs. Of the shipped file only the addresses are changed."""
    said = yaml.safe_load((places.shipped("scheduler-config") / config).read_text())
    said["clientConnection"]["kubeconfig"] = str(access)
    for extender in said.get("extenders", ()):
        extender["urlPrefix"] = f"{cluster.service_url}/scheduler"
    file = folder / config
    file.write_text(yaml.safe_dump(said))
    log = folder / f"{config}.log"
    with log.open("wb") as out:
        running = subprocess.Popen(
            [
                binaries.build(Progress()) / "kube-scheduler",
                f"--config={file}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={folder / config}-certificates",
            ],
            stdout=out,
            stderr=out,
        )
        try:
            yield
        except BaseException as error:
            error.add_note(log.read_text()[-4000:])
            raise
        finally:
            running.terminate()
            running.wait(20)


def is_healthy(port: int) -> bool:
    trust = ssl._create_unverified_context()  # its own certificate, on loopback
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=trust, timeout=5) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


@pytest.mark.parametrize("let_in", [by_service_account, by_the_clusters_own])
def test_both_run_at_once_each_with_its_lease_and_place_the_pods_of_their_profiles(
    cluster: RealCluster, tmp_path: Path, let_in: Any
) -> None:
    api = cluster.admin
    for lease, _ in CONFIGS.values():
        with contextlib.suppress(ApiError):
            api.delete(f"{LEASES}/{lease}")
    access = let_in(cluster, tmp_path)
    chosen = ports.choose(list(CONFIGS))
    with contextlib.ExitStack() as stack:
        for config, port in chosen.items():
            stack.enter_context(scheduling(cluster, config, access, port, tmp_path))
        for config, (lease, profile) in CONFIGS.items():
            name = f"{profile}-{let_in.__name__.replace('_', '-')}"
            api.post("/api/v1/namespaces/default/pods", pod(name, profile))
            path = f"/api/v1/namespaces/default/pods/{name}"
            eventually(lambda port=chosen[config]: is_healthy(port), what=f"{config} healthy")  # type: ignore[misc]
            eventually(lambda path=path: api.get(path)["spec"].get("nodeName"), within=40, what=f"{name} bound")  # type: ignore[misc]
            taken = api.get(f"{LEASES}/{lease}")["spec"]
            assert taken["holderIdentity"]
            # Whoever may make a lease, and not renew it, is a scheduler for ten seconds.
            eventually(lambda: api.get(f"{LEASES}/{lease}")["spec"]["renewTime"] > taken["renewTime"], what="a renewal")  # noqa: B023
