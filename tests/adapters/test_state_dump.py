"""The file of a state dump: what it is, what of it is refused, and that no secret is in it."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest

from extender import __version__
from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.state_dump import BadDump, plainly, read, written
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.snapshot import records, reopened
from extender.core.cluster import Node, Pod
from tests.builders import gang_pods, node
from tests.core.gang_world import FixedClock
from tests.performing import replaced

SECRET = "hunter2"
"""What every place bears that is none of the core's."""


def scheduler() -> Scheduler:
    made = Scheduler(FixedClock())
    replaced(made, Node, [node("n1"), node("n2")])
    replaced(made, Pod, gang_pods("train", 3, {"cpu": 8000}))
    return made


def file() -> bytes:
    return written(records(scheduler()))


def text() -> bytes:
    return b"".join(plainly(file()))


def count(content: bytes) -> int:
    return len(list(read(io.BufferedReader(io.BytesIO(content)))))


def complaint(content: bytes) -> str:
    with pytest.raises(BadDump) as refused:
        count(content)
    return str(refused.value)


# -- what it is


def test_the_first_line_says_what_it_is_and_the_last_how_many_there_were() -> None:
    first, *lines, last = (json.loads(line) for line in text().splitlines())
    assert first == {"kind": "escher-state-dump", "format": 2, "escher": __version__}
    assert last == {"end": len(lines)}
    assert [next(iter(line)) for line in lines].count("Pod") == 3


def test_the_same_state_is_the_same_file() -> None:
    assert file() == file()


def test_it_is_read_compressed_or_not() -> None:
    assert count(file()) == count(text()) > 0


def test_a_part_at_a_time_it_is_the_same() -> None:
    whole = gzip.decompress(file())
    parts = list(plainly(file(), 64))
    assert b"".join(parts) == whole
    assert max(map(len, parts)) <= 64


def test_it_is_told_how_far_it_has_been_read() -> None:
    told: list[int] = []
    list(read(io.BufferedReader(io.BytesIO(file())), told.append))
    assert told == [0, count(file())]


# -- what is refused

COMPRESSED = gzip.compress(b"hello\n", mtime=0)
NONE = "it is not a state dump: write one with `escher state --dump FILE`"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hello", b"hello\n", b"{}\n", b"[1]\n", b'{"kind":"Pod"}\n', COMPRESSED, b"\xff\n"]
)
def test_what_is_no_dump_is_refused(content: bytes) -> None:
    assert complaint(content) == NONE


def test_one_of_another_format_names_both_and_who_wrote_it() -> None:
    other = text().replace(b'"format":2', b'"format":3').replace(f'"{__version__}"'.encode(), b'"9.0"')
    assert complaint(other) == (
        f"its format is 3, written by escher '9.0'; this is escher {__version__}, which reads format 2: "
        "use the escher version that wrote it"
    )


@pytest.mark.parametrize("left", [-1, -20, -200, 400])
def test_one_that_was_not_copied_to_its_end_is_refused(left: int) -> None:
    assert "it ends too early" in complaint(text()[:left])
    assert "it ends too early" in complaint(file()[: min(left, -12)])


def test_one_of_which_the_compression_is_damaged_is_refused() -> None:
    whole = file()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes([whole[middle] ^ 0xFF]) * 8 + whole[middle + 8 :]
    assert "its compression (gzip) is damaged" in complaint(damaged)


def test_one_of_which_a_line_is_missing_is_refused() -> None:
    lines = text().splitlines(keepends=True)
    assert "lines are missing" in complaint(b"".join([*lines[:3], *lines[4:]]))


def test_one_that_something_follows_is_refused() -> None:
    assert "it has lines after its end" in complaint(text() + text())


def test_a_line_that_makes_no_sense_is_named() -> None:
    lines = text().splitlines(keepends=True)
    assert complaint(b"".join([lines[0], b"{\n", *lines[2:]])).startswith("line 2 is not JSON: ")
    said = complaint(b"".join([lines[0], lines[1], b'{"Pod":{"uid":7}}\n', *lines[3:]]))
    assert said == "line 3: Pod.uid: expected str, found 7"
    assert complaint(b"".join([lines[0], b'{"Popen":{}}\n', *lines[2:]])).startswith(
        "line 2: expected one of ['Budget'"
    )


# -- no secrets


def _everywhere() -> tuple[dict[str, Any], dict[str, Any]]:
    """A pod and a node with a secret in every place where people put one."""
    foreign = {f"example.com/{SECRET}": SECRET, "kubectl.kubernetes.io/last-applied-configuration": SECRET}
    managed = [{"manager": SECRET, "operation": "Update", "fieldsV1": {f"f:{SECRET}": {}}}]
    metadata = {"uid": "u", "resourceVersion": "1", "annotations": foreign, "managedFields": managed}
    metadata |= {"finalizers": [f"example.com/{SECRET}"], "generateName": f"{SECRET}-", "selfLink": SECRET}
    source = {"name": SECRET, "key": SECRET}
    container = {
        "name": SECRET, "image": SECRET, "command": [SECRET], "args": [SECRET], "workingDir": SECRET,
        "env": [{"name": SECRET, "value": SECRET}, {"name": "B", "valueFrom": {"secretKeyRef": source}}],
        "envFrom": [{"secretRef": {"name": SECRET}}, {"configMapRef": {"name": SECRET}}],
        "volumeMounts": [{"name": SECRET, "mountPath": SECRET}], "resources": {"requests": {"cpu": "1"}},
        "livenessProbe": {"httpGet": {"path": SECRET, "httpHeaders": [{"name": SECRET, "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}}, "terminationMessagePath": SECRET,
    }  # fmt: skip
    volumes: list[dict[str, Any]] = [
        {"name": SECRET, "secret": {"secretName": SECRET}}, {"name": "c", "configMap": {"name": SECRET}},
        {"name": "p", "persistentVolumeClaim": {"claimName": SECRET}}, {"name": "h", "hostPath": {"path": SECRET}},
        {"name": "i", "csi": {"driver": SECRET, "nodePublishSecretRef": {"name": SECRET}}},
        {"name": "n", "nfs": {"server": SECRET, "path": SECRET}},
    ]  # fmt: skip
    pod = {
        "metadata": {
            **metadata, "name": "p", "namespace": "team",
            "ownerReferences": [{"apiVersion": SECRET, "kind": "Job", "name": "j", "uid": "uj", "controller": True}],
        },
        "spec": {
            "containers": [container], "initContainers": [container], "ephemeralContainers": [container],
            "volumes": volumes, "imagePullSecrets": [{"name": SECRET}], "serviceAccountName": SECRET,
            "hostname": SECRET, "subdomain": SECRET, "hostAliases": [{"ip": "1.2.3.4", "hostnames": [SECRET]}],
            "securityContext": {"seLinuxOptions": {"user": SECRET}}, "runtimeClassName": SECRET,
            "dnsConfig": {"searches": [SECRET]}, "schedulerName": "escher", "priorityClassName": SECRET,
            "resourceClaims": [{"name": SECRET, "resourceClaimName": SECRET}],
            "readinessGates": [{"conditionType": SECRET}],
        },
        "status": {
            "phase": "Pending", "message": SECRET, "reason": SECRET, "podIP": SECRET, "hostIP": SECRET,
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": SECRET, "message": SECRET}],
            "containerStatuses": [{"name": SECRET, "image": SECRET, "imageID": SECRET, "containerID": SECRET}],
        },
    }  # fmt: skip
    of_node = {
        "metadata": {**metadata, "name": "n1"},
        "spec": {"providerID": SECRET, "podCIDR": SECRET, "configSource": {"configMap": {"name": SECRET}}},
        "status": {
            "allocatable": {"cpu": "8", "pods": "10"}, "capacity": {"cpu": "8", "pods": "10"},
            "addresses": [{"type": "InternalIP", "address": SECRET}], "images": [{"names": [SECRET]}],
            "nodeInfo": {"machineID": SECRET, "kernelVersion": SECRET}, "volumesInUse": [SECRET],
            "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
        },
    }  # fmt: skip
    return pod, of_node


def test_no_secret_of_a_pod_or_a_node_is_in_it() -> None:
    pod, of_node = _everywhere()
    made = Scheduler(FixedClock())
    for kind, of, item in ((Node, kinds.nodes(), of_node), (Pod, kinds.pods(60.0), pod)):
        page = of.read_page(json.dumps({"metadata": {}, "items": [item]}).encode())
        assert page.unreadable == []
        replaced(made, kind, page.items)
    content = b"".join(plainly(written(records(made))))
    assert b'"team"' in content
    assert SECRET.encode() not in content
    assert [
        str(each) for each in reopened(read(io.BufferedReader(io.BytesIO(content)))).scheduler.cache.pods.values()
    ] == ["team/p"]


def test_no_setting_but_those_that_decide_is_in_it() -> None:
    [told] = [json.loads(line) for line in text().splitlines() if line.startswith(b'{"Circumstances"')]
    assert set(told["Circumstances"]) <= {
        "now", "steady", "rules", "schedulers", "labelled", "ages", "stale_after", "budgets_known",
        "pod_groups_installed", "foreign_policies",
    }  # fmt: skip
