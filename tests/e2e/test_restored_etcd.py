"""A real etcd is restored from a backup, and everything that was written since is gone: versions go back where its
folder is copied back, and on where etcd's own tool restores it as Kubernetes asks."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.shipped.progress import Progress
from lab.controlplane import nodes
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes.go_module import GoModule
from loadtests.shared.ledger import Service
from loadtests.shared.pods import pod
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RESOURCES = "/v1/namespaces/default/resources"
PODS = "/api/v1/namespaces/default/pods"
KEY = "escher.dev/default"
ETCDUTL = GoModule(
    Path(__file__).parent / "go",
    {"etcdutl": "go.etcd.io/etcd/etcdutl/v3"},
    ["-trimpath", "-buildvcs=false", "-ldflags=-s -w"],
    purpose="etcd's tool for backups",
)
_NOTICED_WITHIN = 60.0


@pytest.fixture
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """One of the test's own, for its etcd is replaced."""
    with RealCluster.start(nodes=3) as started:
        yield started


@contextlib.contextmanager
def without_etcd(cluster: RealCluster) -> Iterator[None]:
    """As whoever restores a backup does it: etcd and the API server stand still, and whoever caches is started anew.

    The service is not: it has to find out.
    """
    cached = ("kube-controller-manager", "kwok", "kube-scheduler", "kube-scheduler-resources")
    for component in (*cached, "kube-apiserver", "etcd"):
        cluster.stop_component(component)
    yield
    for component in ("etcd", "kube-apiserver", *cached):
        cluster.start_component(component)


def peer_of(cluster: RealCluster) -> str:
    said = Path(f"/proc/{cluster.pids()['etcd']}/cmdline").read_text().split("\0")
    return next(each.partition("=")[2] for each in said if each.startswith("--initial-advertise-peer-urls="))


def restore(cluster: RealCluster, backup: Path, how: str, peer: str) -> None:
    """The folder of etcd's data is the backup's, while etcd stands still."""
    shutil.rmtree(cluster.etcd_data)
    if how == "back":
        shutil.copytree(backup, cluster.etcd_data)
        return
    tool = ETCDUTL.build(Progress()) / "etcdutl"
    told = ["--name", "escher", "--initial-cluster", f"escher={peer}", "--initial-advertise-peer-urls", peer]
    snapshot = ["snapshot", "restore", str(backup / "member" / "snap" / "db"), "--skip-hash-check"]
    bumped = ["--bump-revision", "1000000000", "--mark-compacted", "--data-dir", str(cluster.etcd_data)]
    subprocess.run([str(tool), *snapshot, *bumped, *told], check=True, capture_output=True)


@pytest.mark.parametrize("how", ["back", "on"])
def test_everything_is_as_the_backup_says_and_works_from_there(cluster: RealCluster, tmp_path: Path, how: str) -> None:
    service, api = Service(cluster.service_url), cluster.admin
    pid, backup, peer = cluster.pids()["service"], tmp_path / "etcd", peer_of(cluster)

    def put(name: str, capacity: int, node: str) -> int:
        return service.raw("PUT", f"{RESOURCES}/{name}", {"capacity": capacity, "node_spec": node}).status_code

    def said(node: str) -> dict[str, str]:
        found = api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
        return {key.removeprefix(f"{KEY}."): units for key, units in found.items() if key.startswith(KEY)}

    def known(node: str) -> dict[str, int]:
        found = service.cluster_state().get(node, {"capacity": {}})["capacity"]
        return {key.removeprefix(f"{KEY}."): units for key, units in found.items() if key.startswith(KEY)}

    def free(node: str, name: str) -> object:
        return service.cluster_state()[node]["available"].get(f"{KEY}.{name}")

    def asks(name: str, units: int) -> dict[str, Any]:
        wanted: dict[str, Any] = {f"{KEY}.data": units}
        return pod(name, **wanted)

    def is_bound(name: str) -> bool:
        return bool(api.get(f"{PODS}/{name}")["spec"].get("nodeName"))

    def known_bound() -> int:
        """How many members of the gang are bound, as the service has it."""
        [gang] = service.call("GET", "/v1/namespaces/default/gangs")["items"]
        return sum(each["phase"] == "bound" for each in gang["members"])

    def free_of(blocker: int) -> None:
        api.delete(f"{PODS}/blocker-{blocker}?gracePeriodSeconds=0")

    assert [put("data", 4, "node-0"), put("gone", 2, "node-1")] == [200, 200]
    for number in range(3):
        api.post(PODS, pod(f"blocker-{number}", cpu=6))
    eventually(lambda: all(is_bound(f"blocker-{number}") for number in range(3)), what="no room for a gang")
    for number in range(3):
        api.post(PODS, pod(f"train-{number}", cpu=6, gang="train", quorum=3))
    api.post(PODS, asks("early", 1))
    eventually(lambda: is_bound("early"), what="the first pod bound")
    with without_etcd(cluster):
        shutil.copytree(cluster.etcd_data, backup)

    eventually(lambda: put("data", 9, "node-0") == 200, within=60, what="a write after the API server's return")
    assert [put("gone", 0, "node-1"), put("later", 5, "node-2")] == [200, 200]
    for number in range(3):
        free_of(number)
    eventually(lambda: known_bound() == 3, within=60, what="the gang bound")
    cluster.create_nodes(nodes.plain(1, nodes.NodeShape(), start=3))
    api.post(PODS, asks("late", 3))
    eventually(lambda: is_bound("late"), within=60, what="the second pod bound")
    eventually(lambda: "node-3" in service.cluster_state(), what="the new node known")
    assert free("node-0", "data") == 5

    with without_etcd(cluster):
        restore(cluster, backup, how, peer)

    wanted = {"node-0": {"data": 4}, "node-1": {"gone": 2}, "node-2": {}}
    eventually(lambda: {each: known(each) for each in wanted} == wanted, within=_NOTICED_WITHIN, what="the old ledger")
    eventually(lambda: "node-3" not in service.cluster_state(), within=_NOTICED_WITHIN, what="the new node forgotten")
    eventually(lambda: free("node-0", "data") == 3, within=_NOTICED_WITHIN, what="the second pod forgotten")
    assert {each: {key: int(units) for key, units in said(each).items()} for each in wanted} == wanted
    assert service.raw("GET", f"{RESOURCES}/later").status_code == 404

    assert put("data", 6, "node-0") == 200
    assert said("node-0") == {"data": "6"}
    api.post(PODS, asks("after", 5))
    eventually(lambda: is_bound("after"), within=60, what="a pod bound after all")
    eventually(lambda: known_bound() == 0, within=_NOTICED_WITHIN, what="the gang's Bindings forgotten")
    free_of(0)
    time.sleep(5)
    assert not any(is_bound(f"train-{number}") for number in range(3)), "one node has no room for a gang of three"
    free_of(1)
    free_of(2)
    eventually(lambda: known_bound() == 3, within=60, what="the gang bound again")
    assert all(is_bound(f"train-{number}") for number in range(3))
    relists = [service.metric("escher_reflector_relists_total", reason=reason) for reason in ("broken", "expired")]
    assert sum(relists) > 0
    assert cluster.pids()["service"] == pid, "it was not started anew"
    service.close()
