"""The embedded cluster as a tool: a process of its own, started, looked at and ended like the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.controlplane.clusters import EmbeddedCluster
from lab.controlplane.processes import state
from lab.controlplane.processes.supervision import running
from tests.controlplane.deadline import eventually


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    assert running("default") is None


def escher(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "extender", "cluster", *arguments], capture_output=True, text=True)


def kubectl(kubeconfig: str, *words: str, says: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("kubectl")), f"--kubeconfig={kubeconfig}", *words]
    return subprocess.run(command, input=says, capture_output=True, text=True, check=True)


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


def explained(pod: str, service_url: str) -> Any:
    command = [sys.executable, "-m", "extender", "explain", "pod", pod, "--url", service_url, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["unheeded"]


def test_explain_says_what_a_pod_asks_for_in_vain() -> None:
    assert escher("up", "--nodes", "1").returncode == 0
    try:
        found = json.loads(escher("status", "--json").stdout)
        for name, more in (("heeded", {}), ("p", {"activeDeadlineSeconds": 5})):
            spec = {"schedulerName": "escher", "containers": [container("100")], **more}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            kubectl(found["kubeconfig"], "create", "-f", "-", says=json.dumps(pod))
        [note] = eventually(lambda: explained("p", found["service_url"]), what="the note")
        shown = subprocess.run(
            [sys.executable, "-m", "extender", "explain", "pod", "p"],
            env={**os.environ, "ESCHER_URL": found["service_url"].replace("127.0.0.1", "localhost")},
            capture_output=True,
            text=True,
        )
        assert explained("heeded", found["service_url"]) == []
    finally:
        escher("down")
    assert note == "spec.activeDeadlineSeconds: not heeded by the embedded cluster: the pod runs on after it"
    assert shown.stdout.rstrip().endswith(note)


def container(cpu: str) -> Any:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def test_status_says_which_process_is_dead_and_what_pods_asked_for_in_vain() -> None:
    assert escher("up", "--nodes", "1").returncode == 0
    try:
        whole = json.loads(escher("status", "--json").stdout)
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [claim]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        warned = kubectl(whole["kubeconfig"], "create", "-f", "-", says=json.dumps(pod))
        told = eventually(lambda: json.loads(escher("status", "--json").stdout)["unheeded"], what="the note")
        shown = escher("status")
        [service] = [each["pid"] for each in whole["processes"] if each["name"] == "service"]
        os.kill(service, signal.SIGKILL)
        eventually(lambda: not _lives(service), what="the end of the service")
        after, said = escher("status", "--json"), escher("status")
    finally:
        escher("down")
    assert (whole["ended"], whole["unheeded"], shown.returncode) == ({}, [], 0)
    assert "Warning: spec.volumes[0].persistentVolumeClaim: not heeded by the embedded cluster" in warned.stderr
    [note] = told
    assert (note["namespace"], note["pod"]) == ("default", "p")
    assert "no claim is looked for" in note["note"]
    assert f"pod default/p  {note['note']}" in shown.stdout
    assert after.returncode == 1
    assert list(json.loads(after.stdout)["ended"]) == ["service"]
    assert (said.returncode, "service should run but ended" in said.stderr) == (1, True)
    assert "Traceback" not in said.stderr


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


@pytest.mark.longer
def test_a_component_can_be_started_with_more_arguments_which_it_has_until_it_is_started_again() -> None:
    with EmbeddedCluster.start(nodes=1) as cluster:
        seen = []
        for more in ([], ["--log-level", "debug"], []):
            cluster.stop_component("service")
            cluster.start_component("service", more)
            command = Path(f"/proc/{cluster.pids()['service']}/cmdline").read_text()
            seen.append("debug" in command)
        assert seen == [False, True, False]


def _lives(pid: int) -> bool:
    return state.alive(state.Running("", pid, 0))
