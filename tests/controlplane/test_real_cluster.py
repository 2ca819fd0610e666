"""Real clusters: they come up, run pods and Jobs, live side by side, and leave nothing running however they end."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.shipped import crds, places, versions
from extender.shipped.errors import ClusterError
from extender.shipped.progress import Progress
from lab.controlplane import nodes
from lab.controlplane.api import Api
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries, state
from lab.controlplane.processes.state import Running
from tests.controlplane.deadline import eventually

# The first use on a machine builds the binaries.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Not the cache: the binaries are built once for everybody.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def pod(name: str, scheduler: str = "escher-resources", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {key.replace("_", "-"): each for key, each in annotations.items()}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def phase(api: Api, name: str) -> str:
    return str(api.get(f"{PODS}/{name}")["status"]["phase"])


def escher(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "extender", "cluster", *arguments], capture_output=True, text=True)


def living(name: str) -> list[Running]:
    """Every process of the cluster, with the identity that makes it unmistakable later."""
    found = state.read(places.cluster_folder(name))
    return [each for each in [found.supervisor, *found.processes] if state.alive(each)] if found else []


def nothing_left(processes: list[Running]) -> None:
    eventually(lambda: not any(map(state.alive, processes)), within=30, what="the end of all processes")


@contextmanager
def owner_process(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another Python process that owns a running cluster and waits."""
    program = (
        "import signal\nfrom lab.controlplane.clusters import RealCluster\n"
        f"with RealCluster.start(name={name!r}, nodes=1, service=False):\n"
        "    print('up', flush=True)\n    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        try:
            yield owner
        finally:
            owner.kill()


def test_pods_are_bound_and_run_and_those_with_a_run_time_end() -> None:
    with RealCluster.start(nodes=100, service=False) as cluster:
        for number in range(20):
            cluster.admin.post(PODS, pod(f"plain-{number}"))
        cluster.admin.post(PODS, pod("short", **{"escher.dev/run_seconds": "1"}))
        cluster.admin.post(PODS, pod("odd", "default-scheduler", **{"escher.dev/run_seconds": "soon"}))
        eventually(lambda: phase(cluster.admin, "short") == "Succeeded", what="the short pod's end")
        names = [f"plain-{number}" for number in range(20)] + ["odd"]
        eventually(lambda: all(phase(cluster.admin, name) == "Running" for name in names), what="all pods running")
        # What was bound is also released again.
        cluster.admin.delete(f"{PODS}/plain-0")
        eventually(lambda: len(cluster.admin.list_all(PODS)) == len(names), what="the deletion")


def test_a_job_completes() -> None:
    template = pod("unused", "default-scheduler", **{"escher.dev/run_seconds": "0.5"})
    template["spec"]["restartPolicy"] = "Never"
    job = {"metadata": {"name": "work"}, "spec": {"completions": 4, "parallelism": 4, "template": template}}
    with RealCluster.start(nodes=2, service=False) as cluster:
        cluster.admin.post("/apis/batch/v1/namespaces/default/jobs", job)

        def conditions() -> set[str]:
            status = cluster.admin.get("/apis/batch/v1/namespaces/default/jobs/work")["status"]
            return {each["type"] for each in status.get("conditions", [])}

        eventually(lambda: "Complete" in conditions(), what="the Job's completion")


def test_resources_put_on_a_node_stay_there_and_are_scheduled_by() -> None:
    with RealCluster.start(nodes=3, service=False) as cluster:
        added = {"escher.dev/default.data1": "2"}
        cluster.admin.patch("/api/v1/nodes/node-1/status", {"status": {"capacity": added, "allocatable": added}})
        wanting = pod("wanting")
        wanting["spec"]["containers"][0]["resources"] = {"limits": {"escher.dev/default.data1": "2"}}
        cluster.admin.post(PODS, wanting)
        eventually(lambda: phase(cluster.admin, "wanting") == "Running", what="the pod running")
        assert cluster.admin.get(f"{PODS}/wanting")["spec"]["nodeName"] == "node-1"
        # kwok writes a node that is not ready; that must not take the resources away.
        not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}}
        cluster.admin.patch("/api/v1/nodes/node-1/status", not_ready, kind="strategic")

        def status() -> dict[str, Any]:
            found: dict[str, Any] = cluster.admin.get("/api/v1/nodes/node-1")["status"]
            return found

        eventually(
            lambda: {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in status()["conditions"]}.items()
        )
        assert status()["allocatable"]["escher.dev/default.data1"] == "2"
        assert status()["allocatable"]["cpu"] == "8"


def test_pods_of_the_extender_profiles_come_to_the_address_of_the_service() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    class Extender(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body))
            answer = {"NodeNames": [], "FailedNodes": dict.fromkeys(body.get("NodeNames") or [], "not today")}
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    with RealCluster.start(nodes=5, service=False, marks=True) as cluster:
        port = int(cluster.service_url.rpartition(":")[2])
        with http.server.ThreadingHTTPServer(("127.0.0.1", port), Extender) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for profile in ("escher", "escher-ledger"):
                cluster.admin.post(PODS, pod(profile, profile))
            eventually(lambda: {body["Pod"]["metadata"]["name"] for _, body in seen} >= {"escher", "escher-ledger"})
            server.shutdown()
    path, body = seen[0]
    assert path == "/scheduler/filter-only"
    assert (body["Nodes"], len(body["NodeNames"])) == (None, 5)


@pytest.mark.skipif(versions.chosen().native_gangs is None, reason="this minor of Kubernetes has no such kind")
def test_native_pod_groups_work_when_asked_for() -> None:
    with RealCluster.start(nodes=2, service=False, native_gangs=True) as cluster:
        group = {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        cluster.admin.post("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
        for number in range(2):
            member = pod(f"member-{number}")
            member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
            cluster.admin.post(PODS, member)
        for number in range(2):
            eventually(lambda name=f"member-{number}": phase(cluster.admin, name) == "Running", what="the gang running")  # type: ignore[misc]


def test_components_can_be_stopped_started_killed_and_paused() -> None:
    with RealCluster.start(nodes=2, service=False) as cluster:
        before = cluster.pids()
        cluster.stop_component("kube-scheduler-resources")
        assert "kube-scheduler-resources" not in cluster.pids()
        cluster.admin.post(PODS, pod("later"))
        cluster.start_component("kube-scheduler-resources")
        eventually(lambda: phase(cluster.admin, "later") == "Running", what="the pod after the restart")
        cluster.kill("kube-apiserver")
        cluster.kill("etcd")
        cluster.start_component("etcd")
        cluster.start_component("kube-apiserver")
        assert phase(cluster.admin, "later") == "Running"
        cluster.kill("kwok", signal.SIGSTOP)
        cluster.kill("kwok", signal.SIGCONT)
        after = cluster.pids()
        assert set(after) == set(before)
        assert {name for name in before if before[name] == after[name]} == {
            "kube-scheduler",
            "kube-controller-manager",
            "kwok",
        }
        with pytest.raises(ClusterError, match="no component is called 'kubelet'; there are etcd"):
            cluster.stop_component("kubelet")
        with pytest.raises(ClusterError, match="service does not run"):
            cluster.stop_component("service")
        with pytest.raises(ClusterError, match="etcd runs already"):
            cluster.start_component("etcd")


def test_leaving_the_block_leaves_no_process_and_no_file() -> None:
    with RealCluster.start(name="mine", nodes=1, service=False) as cluster:
        processes = living("mine")
        assert {each.name for each in processes} == {"supervisor", *cluster.pids()}
    assert not any(map(state.alive, processes))
    assert not places.cluster_folder("mine").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_a_killed_owner_leaves_nothing_running() -> None:
    with owner_process("owned") as owner:
        processes = living("owned")
        assert len(processes) == 7
        owner.kill()
        nothing_left(processes)
    eventually(lambda: not places.cluster_folder("owned").exists(), what="the removal of the folder")


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_a_killed_supervisor_leaves_nothing_running() -> None:
    with owner_process("owned"):
        processes = living("owned")
        [supervisor] = [each for each in processes if each.name == "supervisor"]
        os.kill(supervisor.pid, signal.SIGKILL)
        nothing_left(processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupting_up_leaves_nothing_running(number: signal.Signals) -> None:
    arguments = [sys.executable, "-m", "extender", "cluster", "up", "--real", "--no-service", "--name", "cut"]
    # A shell's background jobs, and so perhaps these tests, ignore SIGINT, and children inherit that.
    on_event = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, preexec_fn=on_event) as up:
        processes = eventually(
            lambda: [each for each in living("cut") if each.name == "kube-apiserver"] and living("cut"), within=60
        )
        up.send_signal(number)
        _, said = up.communicate(timeout=60)
    assert up.returncode != 0
    assert "Traceback" not in said
    nothing_left(processes)


def test_up_status_and_down_of_two_clusters_side_by_side(tmp_path: Path) -> None:
    copy = tmp_path / "kubeconfig"
    began = {
        name: subprocess.Popen(
            [*(sys.executable, "-m", "extender", "cluster", "up", "--real", "--no-service"), *more, "--name", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, more in {"one": ["--nodes", "3", "--kubeconfig", str(copy)], "two": ["--nodes", "5"]}.items()
    }
    for name, up in began.items():
        said, _ = up.communicate(timeout=900)
        assert up.returncode == 0, f"{name}: {said}"
    shown = {name: json.loads(escher("status", "--json", "--name", name).stdout) for name in began}
    assert copy.read_bytes() == Path(shown["one"]["kubeconfig"]).read_bytes()
    assert shown["one"]["service_url"] != shown["two"]["service_url"]
    one, two = living("one"), living("two")
    assert [each["pid"] for each in shown["one"]["processes"]] == [each.pid for each in one]
    again = escher("up", "--real", "--no-service", "--name", "one")
    assert (again.returncode, "already runs" in again.stderr) == (1, True)
    assert escher("down", "--name", "one").returncode == 0
    assert not any(map(state.alive, one))
    assert all(map(state.alive, two))
    assert not copy.exists()
    assert escher("down", "--name", "two").returncode == 0
    assert not any(map(state.alive, two))
    assert escher("status", "--name", "two").returncode == 1


def test_a_component_that_dies_at_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no plugin called Wishful'\nexit 3\n")
    broken.chmod(0o755)
    ended = escher("up", "--real", "--no-service", "--nodes", "0", "--scheduler-binary", f"mine={broken}")
    assert ended.returncode == 1
    assert "kube-scheduler-mine ended while the cluster was starting: exit code 3" in ended.stderr
    assert ended.stderr.rstrip().endswith("no plugin called Wishful")
    assert "Traceback" not in ended.stderr
    assert escher("status").returncode == 1
    assert not living("default")


def test_a_port_that_somebody_else_took_meanwhile_costs_another_try_and_no_more(tmp_path: Path) -> None:
    # A scheduler that finds its port taken the first time; then it is the real one.
    unlucky = tmp_path / "unlucky"
    real = binaries.build(Progress()) / "kube-scheduler"
    unlucky.write_text(
        f"#!/bin/sh\nif mkdir '{tmp_path}/once' 2>/dev/null; then\n"
        f"  echo 'listen tcp 127.0.0.1:1: bind: address already in use'; exit 1\nfi\nexec '{real}' \"$@\"\n"
    )
    unlucky.chmod(0o755)
    with RealCluster.start(nodes=1, service=False, scheduler_binaries={"mine": unlucky}) as cluster:
        assert (tmp_path / "once").is_dir()
        cluster.admin.post(PODS, pod("one", "mine"))
        eventually(lambda: phase(cluster.admin, "one") == "Running", what="the pod of the brought scheduler")


def test_definitions_are_served_once_they_are_established_and_a_bad_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "things.yaml").write_text(definition)
    with RealCluster.start(service=False) as cluster:
        monkeypatch.setattr(places, "shipped", lambda _folder: tmp_path)

        def establish() -> None:
            trust, token = cluster.access.trust, cluster.access.token
            crds.establish(cluster.api_url, trust=trust, token=token, pause=threading.Event().wait)

        establish()
        assert cluster.admin.get("/apis/example.com/v1/namespaces/default/things")["items"] == []
        (tmp_path / "crds" / "things.yaml").write_text(definition.replace("singular: thing", "singular: NOT"))
        cluster.admin.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com")
        with pytest.raises(ClusterError, match=r"refuses the definition things\.example\.com: .*singular"):
            establish()


def test_a_pod_that_the_api_server_left_behind_is_removed() -> None:
    """It ended after it had written that the pod is to go at once, and before it removed it."""
    with RealCluster.start(nodes=1, service=False) as cluster:
        for name, annotations in {"runs": {}, "ended": {"escher.dev/run_seconds": "0"}}.items():
            cluster.admin.post(PODS, pod(name, **annotations))
        eventually(lambda: phase(cluster.admin, "runs") == "Running", what="a pod running")
        eventually(lambda: phase(cluster.admin, "ended") == "Succeeded", what="a pod succeeding")
        for name in ("runs", "ended"):
            left = cluster.admin.get(f"{PODS}/{name}")
            left["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
            del left["metadata"]["resourceVersion"]
            stored = {"key": f"/registry/pods/default/{name}", "value": json.dumps(left)}
            body = {key: base64.b64encode(each.encode()).decode() for key, each in stored.items()}
            httpx.post(f"http://127.0.0.1:{cluster.port('etcd')}/v3/kv/put", json=body).raise_for_status()
        eventually(lambda: not cluster.admin.list_all(PODS), what="the end of both")


def test_a_component_that_ends_later_is_shown_by_status() -> None:
    with RealCluster.start(name="mine", service=False) as cluster:
        os.kill(cluster.pids()["kwok"], signal.SIGKILL)
        eventually(lambda: "killed by SIGKILL" in escher("status", "--name", "mine").stdout, what="status to show it")
        cluster.start_component("kwok")
        assert json.loads(escher("status", "--json", "--name", "mine").stdout)["ended"] == {}


@pytest.mark.timeout(600)
def test_five_thousand_nodes_come_up() -> None:
    with RealCluster.start(nodes=5000, service=False) as cluster:
        assert len(cluster.admin.list_all("/api/v1/nodes")) == 5000
        cluster.admin.post(PODS, pod("one"))
        eventually(lambda: phase(cluster.admin, "one") == "Running", within=60, what="a pod running")


def test_the_nodes_of_the_trace_are_created_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,262144,0,\nb,96000,786432,8,V100M32\nc,1,1,0,\n")
    with RealCluster.start(node_trace=file, nodes=2, service=False) as cluster:
        found = {
            each["metadata"]["name"]: each["status"]["allocatable"] for each in cluster.admin.list_all("/api/v1/nodes")
        }
        assert set(found) == {"a", "b"}
        assert found["b"][nodes.GPU] == "8"
