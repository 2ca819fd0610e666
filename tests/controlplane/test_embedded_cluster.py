"""The embedded cluster as a tool: a process of its own, started, looked at and ended like the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.controlplane import state
from extender.controlplane.cluster import EmbeddedCluster
from extender.controlplane.supervision import running
from tests.controlplane.deadline import eventually


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    assert running("default") is None


def escher(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "extender", "cluster", *arguments], capture_output=True, text=True)


def test_it_is_up_shown_and_down_again_with_the_commands(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    up = escher("up", "--nodes", "3", "--kubeconfig", str(kubeconfig))
    try:
        assert up.returncode == 0, up.stderr
        assert kubeconfig.exists()
        said = json.loads(escher("status", "--json").stdout)
    finally:
        down = escher("down")
    assert (said["kind"], said["phase"]) == ("embedded", "ready")
    assert [each["name"] for each in said["processes"]] == ["supervisor", "embedded-cluster", "service"]
    assert "stopped 3 processes" in down.stdout
    assert not kubeconfig.exists()
    assert not any(_lives(each["pid"]) for each in said["processes"])


def test_it_ends_with_its_block_and_places_pods_meanwhile() -> None:
    with EmbeddedCluster.start(nodes=2) as cluster:
        assert len(cluster.admin.list_all("/api/v1/nodes")) == 2
        pod = {
            "metadata": {"name": "p"},
            "spec": {"schedulerName": "escher", "containers": [{"name": "c", "image": "i"}]},
        }
        cluster.admin.post("/api/v1/namespaces/default/pods", pod)
        where = "/api/v1/namespaces/default/pods/p"
        eventually(lambda: cluster.admin.get(where)["status"]["phase"] == "Running", what="the pod running")
        pids = cluster.pids()
    assert not any(_lives(pid) for pid in pids.values())


def test_without_the_service_pods_of_the_extender_wait_and_others_are_placed() -> None:
    with EmbeddedCluster.start(nodes=1, service=False) as cluster:
        assert "service" not in cluster.pids()
        for name, scheduler in (("waits", "escher"), ("runs", "escher-resources")):
            spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
            cluster.admin.post("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
        pods = "/api/v1/namespaces/default/pods"
        eventually(lambda: cluster.admin.get(f"{pods}/runs")["status"]["phase"] == "Running", what="the other running")
        assert "nodeName" not in cluster.admin.get(f"{pods}/waits")["spec"]
        cluster.start_component("service")
        eventually(lambda: cluster.admin.get(f"{pods}/waits")["status"]["phase"] == "Running", what="it running")


def _lives(pid: int) -> bool:
    return state.alive(state.Running("", pid, 0))
