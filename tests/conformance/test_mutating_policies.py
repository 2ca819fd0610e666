"""The policies of `deploy/policies`, as `kubectl apply` installs them: the API server changes pods on their way in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.site import EXTENDER, LEDGER, PURE, Json, Site
from tests.conformance.test_kubectl import Kubectl
from tests.controlplane.deadline import eventually

FOLDER = Path(__file__).parents[2] / "deploy/policies"
ROOT = "/apis/admissionregistration.k8s.io/v1"
MARK = "escher.dev/managed"
GATE = "escher.dev/gang"


def tried(site: Site, pod: Json) -> Json:
    """What would become of the pod."""
    return dict(site.api.post(site.pods_at(), pod, dryRun="All"))


@contextmanager
def in_force(site: Site, file: str, changes: Callable[[], bool]) -> Iterator[None]:
    """The policy of that file is, which `changes` sees; it is no more afterwards. Either takes the real one seconds."""
    policy, binding = yaml.safe_load_all((FOLDER / file).read_text())
    site.cluster_wide(f"{ROOT}/mutatingadmissionpolicies", policy)
    made = site.cluster_wide(f"{ROOT}/mutatingadmissionpolicybindings", binding)
    try:
        eventually(changes, what=f"{file} in force")
        yield
    finally:
        site.api.delete(f"{ROOT}/mutatingadmissionpolicybindings/{made['metadata']['name']}")
        eventually(lambda: not changes(), what=f"the end of {file}")


def gates(site: Site, pod: Json) -> list[str]:
    return [each["name"] for each in tried(site, pod)["spec"].get("schedulingGates") or []]


def marks(site: Site, pod: Json) -> list[tuple[str | None, str | None]]:
    """What each container requests of the mark, and its limit."""
    found = [each["resources"] for each in tried(site, pod)["spec"]["containers"]]
    return [((each.get("requests") or {}).get(MARK), (each.get("limits") or {}).get(MARK)) for each in found]


MARKED, PLAIN = ("0", "0"), (None, None)


@pytest.fixture
def gating(site: Site) -> Iterator[None]:
    with in_force(site, "gate-gangs.yaml", lambda: bool(gates(site, site.gang("probe", 1)[0]))):
        yield


def test_kubectl_applies_both_and_a_second_time_changes_nothing(site: Site, tmp_path: Path) -> None:
    """That which marks pods is in force on every cluster of `escher cluster`, and stays."""
    kubectl = Kubectl(site, tmp_path)
    member = site.gang("probe", 1)[0]
    kubectl("apply", "-f", str(FOLDER))
    try:
        eventually(lambda: (gates(site, member), marks(site, member)) == ([GATE], [MARKED]), what="both in force")
        assert len(kubectl("apply", "-f", str(FOLDER)).splitlines()) == 4
        generations = "jsonpath={.items[*].metadata.generation}"
        assert kubectl("get", "-f", str(FOLDER), "-o", generations) == "1 1 1 1"
    finally:
        kubectl("delete", "-f", str(FOLDER / "gate-gangs.yaml"))
        eventually(lambda: gates(site, member) == [], what="the end of the gate")
    assert marks(site, member) == [MARKED]


def test_a_pod_with_the_mark_that_the_fit_turned_away_is_tried_when_a_node_comes(site: Site) -> None:
    """What news of a node is worth to a pod does not heed `ignoredByScheduler`: with 1 it would sleep on."""
    site.node()
    [name] = site.create(labelled(site, "large", cpu=16))
    site.until_rejected(name)
    site.node(cpu=32)
    site.until_bound([name])


def labelled(site: Site, name: str, scheduler: str = EXTENDER, **more: Any) -> Json:
    return site.pod(name, scheduler, labels={"escher.dev/team": "a"}, **more)


def asking(site: Site, name: str, *, init: bool = False, **resources: Json) -> Json:
    """A pod of two containers; what it asks for is asked by the second, or by an init container."""
    made = site.pod(name)
    other = {"name": "other", "image": "none", "resources": resources}
    spec = made["spec"]
    if init:
        spec["initContainers"] = [other]
    else:
        spec["containers"].append(other)
    return made


@pytest.mark.usefixtures("gating")
def test_members_of_gangs_get_the_gate_behind_those_that_they_have(site: Site) -> None:
    queued = site.gang("queued", 1)[0]
    queued["spec"]["schedulingGates"] = [{"name": "queue.example/quota"}]
    assert gates(site, site.gang("member", 1)[0]) == [GATE]
    assert gates(site, site.gang("ledger", 1, LEDGER)[0]) == [GATE]
    assert gates(site, queued) == ["queue.example/quota", GATE]
    assert gates(site, site.gang("gated", 1, gated=True)[0]) == [GATE]


@pytest.mark.usefixtures("gating")
def test_nobody_else_is_gated(site: Site) -> None:
    placed = site.gang("placed", 1)[0]
    placed["spec"]["nodeName"] = site.node()
    assert gates(site, site.pod("plain")) == []
    assert gates(site, site.gang("pure", 1, PURE)[0]) == []
    assert gates(site, placed) == []


@pytest.mark.usefixtures("gating")
def test_a_member_that_is_created_waits_behind_its_gate(site: Site) -> None:
    [name, _] = site.create(*site.gang("train", 2, EXTENDER, quorum=3))
    found = site.read(name)
    assert found["spec"]["schedulingGates"] == [{"name": GATE}]
    [said] = [each for each in found["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (said["status"], said["reason"]) == ("False", "SchedulingGated")


def test_who_needs_escher_gets_the_mark(site: Site) -> None:
    ours: dict[str, Any] = {site.key("data"): 1}
    assert marks(site, labelled(site, "label")) == [MARKED]
    assert marks(site, labelled(site, "ledger", LEDGER)) == [MARKED]
    assert marks(site, site.pod("annotation", annotations={"escher.dev/policy": "spread"})) == [MARKED]
    assert marks(site, site.gang("member", 1)[0]) == [MARKED]
    assert marks(site, site.pod("gate", gated=True)) == [MARKED]
    assert marks(site, site.pod("group", labels={"scheduling.x-k8s.io/pod-group": "train"})) == [MARKED]
    assert marks(site, site.pod("request", **ours)) == [MARKED]


def test_whichever_container_asks_the_first_gets_the_mark(site: Site) -> None:
    ours = {site.key("data"): "1"}
    assert marks(site, asking(site, "both", requests=ours, limits=ours)) == [MARKED, PLAIN]
    assert marks(site, asking(site, "limit", limits=ours)) == [MARKED, PLAIN]
    assert marks(site, asking(site, "init", init=True, limits=ours)) == [MARKED]


def test_what_the_first_container_asks_for_besides_stays(site: Site) -> None:
    found = tried(site, labelled(site, "label", cpu=2, memory="1Gi"))["spec"]["containers"][0]["resources"]
    assert found == {"requests": {"cpu": "2", "memory": "1Gi", MARK: "0"}, "limits": {MARK: "0"}}


def test_who_bears_the_mark_already_gets_no_second_one(site: Site) -> None:
    assert marks(site, asking(site, "second", limits={MARK: "0"})) == [PLAIN, MARKED]
    assert marks(site, asking(site, "init", init=True, limits={MARK: "0"})) == [PLAIN]


def test_nobody_else_is_marked(site: Site) -> None:
    placed = labelled(site, "placed")
    placed["spec"]["nodeName"] = site.node()
    assert marks(site, site.pod("plain")) == [PLAIN]
    assert marks(site, site.pod("played", run_seconds=1)) == [PLAIN]
    elsewhere = site.pod("elsewhere", labels={"a.escher.dev/x": "y"}, annotations={"b": "escher.dev/x"})
    assert marks(site, elsewhere) == [PLAIN]
    assert marks(site, labelled(site, "pure", PURE)) == [PLAIN]
    assert marks(site, labelled(site, "default", "default-scheduler")) == [PLAIN]
    assert marks(site, placed) == [PLAIN]
