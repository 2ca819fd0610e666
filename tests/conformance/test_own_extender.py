"""What an extender is asked and what becomes of its answers: sampling, wire, scores, errors, late answers, victims.

A cluster of its own, of 160 nodes and without our service: a tiny extender of the test's stands at its address.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lab.controlplane.api import Api
from loadtests.shared.pods import EXTENDER, LEDGER, Json, pod
from tests.conformance.conftest import CLUSTERS, PLACES
from tests.conformance.played_extender import PlayedExtender, leaves, listening, passes
from tests.controlplane.deadline import eventually

NODES, SAMPLE = 160, 100
WORKERS = 16
"""kube-scheduler's: each may be ahead of the others by a node, so that windows overlap a little."""


@dataclass
class Stage:
    api: Api
    extender: PlayedExtender
    made: list[str]

    def create(self, name: str, scheduler: str = EXTENDER, **more: object) -> str:
        self.api.post(PODS, pod(name, scheduler, **more))  # type: ignore[arg-type]
        self.made.append(name)
        return name

    def read(self, name: str) -> Json:
        return self.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str | None:
        node: str | None = self.read(name)["spec"].get("nodeName")
        return node

    def until_bound(self, name: str, *, within: float = 20) -> str:
        eventually(lambda: self.node_of(name), within=within, what=f"{name} being bound")
        return str(self.node_of(name))

    def until_rejected(self, name: str) -> Json:
        def said() -> Json | None:
            for each in self.read(name)["status"].get("conditions") or ():
                if each["type"] == "PodScheduled" and each["status"] == "False":
                    return dict(each)
            return None

        eventually(said, what=f"{name} being rejected")
        return said() or {}


PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", params=PLACES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with (
            CLUSTERS[request.param].start(nodes=NODES, service=False, marks=False) as cluster,
            listening(cluster.service_url, cluster.admin) as extender,
        ):
            yield Stage(cluster.admin, extender, [])


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    shared.extender.reset()
    yield shared
    shared.extender.reset()
    for name in shared.made:
        shared.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
    shared.made.clear()
    eventually(lambda: not shared.api.list_all(PODS), what="the end of the pods")


def asked_of(stage: Stage, name: str) -> Json:
    """The arguments of the first filter call about the pod."""
    eventually(lambda: stage.extender.of("filter", name), what="the filter call")
    return stage.extender.of("filter", name)[0][1]


def test_it_is_asked_about_a_sample_of_the_nodes_that_fit(stage: Stage) -> None:
    asked = asked_of(stage, stage.create("one"))
    assert len(set(asked["NodeNames"])) == len(asked["NodeNames"]) == SAMPLE


def test_the_next_pod_is_offered_the_nodes_that_follow(stage: Stage) -> None:
    first = set(asked_of(stage, stage.create("first"))["NodeNames"])
    stage.until_bound("first")
    second = set(asked_of(stage, stage.create("second"))["NodeNames"])
    assert len(first | second) > NODES - WORKERS


def test_with_sampling_off_it_is_asked_about_all(stage: Stage) -> None:
    assert len(asked_of(stage, stage.create("all", LEDGER))["NodeNames"]) == NODES


def test_only_names_travel_and_the_pod_as_it_is(stage: Stage) -> None:
    asked = asked_of(stage, stage.create("wire"))
    assert asked.keys() == {"Pod", "Nodes", "NodeNames"}
    assert asked["Nodes"] is None
    there = stage.read("wire")
    assert (asked["Pod"]["metadata"]["uid"], asked["Pod"]["spec"]["schedulerName"]) == (
        there["metadata"]["uid"],
        "escher",
    )


def test_a_bind_call_says_who_and_where(stage: Stage) -> None:
    node = stage.until_bound(stage.create("bound"))
    [(_, asked)] = stage.extender.of("bind", "bound")
    uid = stage.read("bound")["metadata"]["uid"]
    assert asked == {"PodName": "bound", "PodNamespace": "default", "PodUID": uid, "Node": node}


def test_with_one_node_left_it_is_not_asked_for_scores(stage: Stage) -> None:
    stage.extender.answers["filter"] = lambda asked: leaves(asked["NodeNames"][7])(asked)
    node = stage.until_bound(stage.create("single"))
    assert stage.extender.of("filter", "single")[0][1]["NodeNames"][7] == node
    assert stage.extender.of("prioritize", "single") == []


def test_its_scores_decide_between_equal_nodes(stage: Stage) -> None:
    wanted: list[str] = []

    def scores(asked: Json) -> list[Json]:
        wanted[:] = [sorted(asked["NodeNames"])[-1]]
        return [{"Host": name, "Score": 10 if name in wanted else 0} for name in asked["NodeNames"]]

    stage.extender.answers["prioritize"] = scores
    assert stage.until_bound(stage.create("scored")) == wanted[0]


def test_its_reasons_are_told_of_the_nodes_it_was_asked_about(stage: Stage) -> None:
    stage.extender.answers["filter"] = leaves()
    said = stage.until_rejected(stage.create("nowhere"))
    assert said["reason"] == "Unschedulable"
    assert said["message"].startswith(f"0/{NODES} nodes are available: {SAMPLE} not today.")


def test_an_error_of_it_is_one_of_the_attempt_which_is_made_again_after_a_while(stage: Stage) -> None:
    stage.extender.answers["filter"] = lambda asked: {**passes(asked), "Error": "out of order"}
    said = stage.until_rejected(stage.create("unlucky"))
    assert said["reason"] == "SchedulerError"
    assert "out of order" in said["message"]
    stage.extender.answers["filter"] = passes
    stage.until_bound("unlucky")
    times = [when for when, _ in stage.extender.of("filter", "unlucky")]
    assert 0.9 < times[1] - times[0] < 5


def test_a_node_that_it_was_not_asked_about_is_an_error(stage: Stage) -> None:
    stage.extender.answers["filter"] = lambda asked: {**passes(asked), "NodeNames": ["nowhere"]}
    said = stage.until_rejected(stage.create("misled"))
    assert said["reason"] == "SchedulerError"
    assert "nowhere" in said["message"]


def test_a_bind_that_it_refuses_is_tried_anew_from_filter_on_after_a_while(stage: Stage) -> None:
    answers = iter([{"Error": "not now"}])
    stage.extender.answers["bind"] = lambda asked: next(answers, None) or stage.extender.binds(asked)
    stage.until_bound(stage.create("refused"))
    filters, binds = stage.extender.of("filter", "refused"), stage.extender.of("bind", "refused")
    assert (len(filters), len(binds)) == (2, 2)
    assert 0.9 < filters[1][0] - binds[0][0] < 5


def test_a_bind_that_is_answered_late_holds_up_nobody_else(stage: Stage) -> None:
    go_on = threading.Event()

    def late(asked: Json) -> Json:
        if asked["PodName"] == "late":
            go_on.wait(20)
        return stage.extender.binds(asked)

    stage.extender.answers["bind"] = late
    stage.create("late")
    eventually(lambda: stage.extender.of("bind", "late"), what="the bind call")
    stage.until_bound(stage.create("other"))
    assert stage.node_of("late") is None
    go_on.set()
    stage.until_bound("late")


def test_bound_without_a_binding_strands_the_pod(stage: Stage) -> None:
    stage.extender.answers["bind"] = lambda asked: {"Error": ""}
    stage.create("stranded")
    eventually(lambda: stage.extender.of("bind", "stranded"), what="the bind call")
    threading.Event().wait(2.5)
    assert stage.node_of("stranded") is None
    assert len(stage.extender.of("filter", "stranded")) == 1


@pytest.mark.parametrize("agrees", [True, False], ids=["agreed", "refused"])
def test_it_is_asked_whether_the_victims_may_go(stage: Stage, agrees: bool) -> None:
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if "urgent" not in {each["metadata"]["name"] for each in stage.api.list_all(classes)}:
        stage.api.post(classes, urgent)
    here = {"kubernetes.io/hostname": "node-5"}
    stage.until_bound(stage.create("victim", cpu=6, selector=here))
    if not agrees:
        stage.extender.answers["preempt"] = lambda asked: {"NodeNameToMetaVictims": {}}
    stage.create("winner", cpu=6, selector=here, priority_class="urgent")
    eventually(lambda: stage.extender.of("preempt", "winner"), what="the preempt call")
    asked = stage.extender.of("preempt", "winner")[0][1]
    assert not asked["NodeNameToVictims"]
    assert asked["NodeNameToMetaVictims"].keys() == {"node-5"}
    if not agrees:
        threading.Event().wait(1.0)
        assert stage.node_of("victim") == "node-5"
        assert stage.node_of("winner") is None
        return
    stage.made.remove("victim")
    assert stage.until_bound("winner") == "node-5"
    assert [each["metadata"]["name"] for each in stage.api.list_all(PODS)] == ["winner"]


def test_a_pod_that_fails_while_it_is_asked_about_keeps_its_room_for_ever(stage: Stage) -> None:
    """The scheduler hears no more of it, and binds it. So a node has one cpu left until this cluster ends."""
    go_on = threading.Event()

    def late(asked: Json) -> Json:
        if asked["Pod"]["metadata"]["name"] == "failed":
            go_on.wait(20)
        return passes(asked)

    stage.extender.answers["filter"] = late
    here = {"kubernetes.io/hostname": "node-6"}
    stage.create("failed", cpu=7, selector=here)
    asked_of(stage, "failed")
    stage.api.patch(f"{PODS}/failed/status", {"status": {"phase": "Failed"}})
    # Time for the scheduler to hear of it: nothing that can be seen from here tells.
    threading.Event().wait(1.0)
    go_on.set()
    assert stage.until_bound("failed") == "node-6"
    stage.api.delete(f"{PODS}/failed", gracePeriodSeconds=0)
    stage.made.remove("failed")
    stage.create("next", cpu=2, selector=here)
    assert "1 Insufficient cpu" in stage.until_rejected("next")["message"]
    threading.Event().wait(2.5)
    assert stage.node_of("next") is None
