"""A bind call that takes longer than the scheduler waits: it is given up, and the pod is tried anew after a while.

A cluster of its own, whose scheduler waits for one second and not for sixty.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lab.controlplane import nodes
from lab.controlplane.api import Api, ApiError
from lab.controlplane.nodes import NodeShape
from loadtests.shared.pods import Json, pod
from tests.conformance.conftest import CLUSTERS, PLACES
from tests.conformance.played_extender import PlayedExtender, listening
from tests.controlplane.deadline import eventually

PODS = "/api/v1/namespaces/default/pods"
SCHEDULER = {"real": "kube-scheduler", "embedded": "embedded-cluster"}


@pytest.fixture(scope="module", params=PLACES)
def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedExtender]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with CLUSTERS[request.param].start(service=False, marks=False) as cluster:
            file = cluster.logs.parent / "kube-scheduler.json"
            config = json.loads(file.read_text())
            config["extenders"][0]["httpTimeout"] = "1s"
            file.write_text(json.dumps(config))
            cluster.stop_component(SCHEDULER[request.param])
            cluster.start_component(SCHEDULER[request.param])
            cluster.create_nodes(nodes.plain(3, NodeShape()))
            with listening(cluster.service_url, cluster.admin) as extender:
                yield extender


def node_of(api: Api, name: str) -> str | None:
    node: str | None = api.get(f"{PODS}/{name}")["spec"].get("nodeName")
    return node


def test_it_is_given_up_and_the_pod_is_tried_anew_and_bound_once(hasty: PlayedExtender) -> None:
    hasty.reset()
    go_on = threading.Event()

    def first_late(asked: Json) -> Json:
        if len(hasty.of("bind", "late")) == 1:
            go_on.wait(20)
            # What comes too late finds the pod where the second call has put it.
            with suppress(ApiError):
                hasty.binds(asked)
            return {"Error": ""}
        return hasty.binds(asked)

    hasty.answers["bind"] = first_late
    hasty.api.post(PODS, pod("late"))
    eventually(lambda: node_of(hasty.api, "late"), what="the pod being bound")
    binds = hasty.of("bind", "late")
    assert len(binds) == 2
    # A second until it is given up, and a back-off of one second at least.
    assert 1.9 < binds[1][0] - binds[0][0] < 8
    bound_to = node_of(hasty.api, "late")
    assert bound_to == binds[1][1]["Node"]
    go_on.set()
    events = hasty.api.list_all("/apis/events.k8s.io/v1/namespaces/default/events")
    notes = [each["note"] for each in events if each["regarding"]["name"] == "late" and each["type"] == "Warning"]
    assert any("context deadline exceeded" in note for note in notes), notes
    assert node_of(hasty.api, "late") == bound_to


def test_one_that_was_done_although_it_was_given_up_is_not_done_again(hasty: PlayedExtender) -> None:
    hasty.reset()
    done = threading.Event()

    def binds_and_is_silent(asked: Json) -> Json:
        answer = hasty.binds(asked)
        done.wait(5)
        return answer

    hasty.answers["bind"] = binds_and_is_silent
    hasty.api.post(PODS, pod("silent"))
    eventually(lambda: node_of(hasty.api, "silent"), what="the pod being bound")
    bound_to = node_of(hasty.api, "silent")
    threading.Event().wait(4)
    done.set()
    assert node_of(hasty.api, "silent") == bound_to
    assert len(hasty.of("bind", "silent")) == 1
