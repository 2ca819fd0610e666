"""A real etcd is restored from a backup: versions go back, and with them everything that was written since."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.controlplane import nodes
from extender.controlplane.clusters import RealCluster
from loadtests.ledger import Service
from loadtests.pods import pod
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RESOURCES = "/v1/namespaces/default/resources"
PODS = "/api/v1/namespaces/default/pods"
KEY = "escher.dev/default"
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


def test_everything_is_as_the_backup_says_and_works_from_there(cluster: RealCluster, tmp_path: Path) -> None:
    service, api = Service(cluster.service_url), cluster.admin
    pid, backup = cluster.pids()["service"], tmp_path / "etcd"

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

    assert [put("data", 4, "node-0"), put("gone", 2, "node-1")] == [200, 200]
    api.post(PODS, asks("early", 1))
    eventually(lambda: is_bound("early"), what="the first pod bound")
    with without_etcd(cluster):
        shutil.copytree(cluster.etcd_data, backup)

    eventually(lambda: put("data", 9, "node-0") == 200, within=60, what="a write after the API server's return")
    assert [put("gone", 0, "node-1"), put("later", 5, "node-2")] == [200, 200]
    cluster.create_nodes(nodes.plain(1, nodes.NodeShape(), start=3))
    api.post(PODS, asks("late", 3))
    eventually(lambda: is_bound("late"), within=60, what="the second pod bound")
    eventually(lambda: "node-3" in service.cluster_state(), what="the new node known")
    assert free("node-0", "data") == 5

    with without_etcd(cluster):
        shutil.rmtree(cluster.etcd_data)
        shutil.copytree(backup, cluster.etcd_data)

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
    assert service.metric("escher_reflector_relists_total", reason="broken") > 0
    assert cluster.pids()["service"] == pid, "it was not started anew"
    service.close()
