"""Users who place pods and call the management API, on an embedded cluster: all that they ask is accepted, their pods
are bound, and when they have left, nothing is wrong or left over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.controlplane.clusters import LocalCluster
from loadtests.chaos.load import PODS
from loadtests.chaos.rest import IN_PART
from loadtests.load import invariants, placing
from loadtests.load.invariants import AtRest
from loadtests.load.placing import SCHEDULER
from loadtests.load.plan import MANAGEMENT
from loadtests.load.run import started
from loadtests.recorded.calls import load
from loadtests.shared.ledger import Service
from loadtests.shared.reading import ATTEMPT, GANG, node_of, scheduler_of
from tests.load.played import Hook, Real, locustfile

NODES = 6
UNITS = {f"node-{number}": 4 for number in range(NODES)}


@dataclass
class Stage:
    cluster: LocalCluster
    service: Service
    file: Path

    def findings(self) -> list[str]:
        long_ago = time.monotonic() - 3600
        found = AtRest(self.cluster, self.service, {"data1": UNITS}, lambda text: None).findings(long_ago)
        return [f"{check}: {one}" for check, each in found.items() for one in each]


@pytest.fixture(scope="module")
def stage(state_folder: Path) -> Iterator[Stage]:
    with started(NODES) as (cluster, file), closing(Service(cluster.service_url)) as service:
        yield Stage(cluster, service, file)


@dataclass
class Acting:
    """A user on the stage. `told`: what it has told Locust beside its calls."""

    user: Any
    client: Real
    told: Hook


@pytest.fixture
def acting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(invariants, "STUCK_AFTER", 3.0)
    stage.service.call("PUT", "/v1/namespaces/default/resources/data1", {"capacity": 4, "node_spec": {}})
    module = locustfile(monkeypatch, LOAD_CLUSTER=str(stage.file))
    everybody: list[Acting] = []

    def act(who: str) -> Acting:
        user, client, told = getattr(module, who)(), Real(stage.cluster.service_url), Hook()
        user.client = client
        user.environment = SimpleNamespace(events=SimpleNamespace(request=told))
        user.on_start()
        everybody.append(Acting(user, client, told))
        return everybody[-1]

    yield act
    for each in everybody:
        each.client.close()
        each.user.on_stop()
    assert stage.findings() == []


def pods(stage: Stage) -> list[dict[str, Any]]:
    return stage.cluster.admin.list_all(PODS)


@pytest.mark.parametrize(("who", "members"), [("OrdinaryPods", 1), ("EphemeralPods", 1), ("GangPods", 4)])
def test_pods_are_created_asked_about_and_bound(stage: Stage, acting: Any, who: str, members: int) -> None:
    made = acting(who)
    for _ in range(3):
        made.user.place()
    assert made.client.failures == []
    found = pods(stage)
    assert len(found) == 3 * members
    assert all(node_of(each) and scheduler_of(each) == SCHEDULER for each in found)
    assert [(said["exception"], said["response_time"] > 0) for said in made.told.fired] == [(None, True)] * 3
    kind = made.user.kind
    assert {f"filter, {kind}, live", f"bind, {kind}, live"} <= set(made.client.named)


def test_every_verb_for_a_pod_that_exists_waits_for_its_turn(acting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, turns = acting("GangPods"), []
    monkeypatch.setattr("loadtests.load.users.PACE.turn", lambda: turns.append(1))
    made.user.place()
    assert len(turns) == len(made.client.named) >= 8


def test_the_oldest_go_when_enough_is_taken_so_that_it_can_go_on_for_ever(stage: Stage, acting: Any) -> None:
    made = acting("GangPods")
    for _ in range(7):
        made.user.place()
    gangs = {each["metadata"]["labels"][GANG] for each in pods(stage)}
    # Of 48 CPUs half may be taken before the next one comes, and a gang takes 8.
    assert gangs == {f"{made.user.named}-gang-{number}" for number in (4, 5, 6, 7)}
    assert made.client.failures == []


def test_what_cannot_be_placed_is_told_and_deleted(stage: Stage, acting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "PATIENCE", 0.0)
    made = acting("OrdinaryPods")
    made.user.placer._wires = {"ordinary": placing.wires(load())[placing.IN_VAIN]}
    made.user.place()
    assert [str(said["exception"]) for said in made.told.fired] == ["not bound within 0 s"]
    assert pods(stage) == []
    assert made.client.failures == []
    assert made.client.named == ["filter, ordinary, live, turned away"]


def test_a_gang_that_the_api_server_does_not_take_was_not_placed(acting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = acting("GangPods")

    def full(pod: Any) -> str:
        raise placing.Refused("creating a pod: 403 exceeded quota")

    monkeypatch.setattr(made.user.api, "create", full)
    made.user.place()
    told = [(said["request_type"], said["name"], str(said["exception"])) for said in made.told.fired]
    assert told[0] == ("gang", "gang, created to bound", "creating a pod: 403 exceeded quota")


def test_half_a_gang_is_found_while_the_other_half_still_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "STUCK_AFTER", 3.0)
    stage.service.call("PUT", "/v1/namespaces/default/resources/data1", {"capacity": 4, "node_spec": {}})
    api, wire = stage.cluster.admin, placing.wires(load())["gang"][0]
    uids = {f"half-{n}": api.post(PODS, wire.manifest(f"half-{n}", "half"))["metadata"]["uid"] for n in range(4)}
    for name in ("half-0", "half-1"):
        others = [uid for other, uid in uids.items() if other != name]
        attempt = {"pod": uids[name], "attempt": "1", "needed": 4, "size": 4, "with": others, "at": 1.0}
        binding = {
            "metadata": {"name": name, "uid": uids[name], "annotations": {ATTEMPT: json.dumps(attempt)}},
            "target": {"kind": "Node", "name": "node-0"},
        }
        api.post(f"{PODS}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    found = [each for each in stage.findings() if each.startswith(IN_PART)]
    # Of who is gone nobody knows, afterwards, that it was never bound.
    assert found == [f"{IN_PART}: with all pods there: gang default/half: 2 of 4 bound"]


@pytest.mark.parametrize("who", MANAGEMENT)
def test_calls_of_the_management_api_are_as_it_takes_them(acting: Any, who: str) -> None:
    made = acting(who)
    task = {"Policies": "change", "Resources": "change", "WhatIf": "ask", "Explainer": "explain"}[who]
    for _ in range(3):
        getattr(made.user, task)()
    assert made.client.failures == []
    assert len(made.client.named) >= 6


def test_policies_govern_pods_that_are_placed_meanwhile(stage: Stage, acting: Any) -> None:
    policies, placed = acting("Policies"), acting("OrdinaryPods")
    for _ in range(4):
        policies.user.change()
        placed.user.place()
    assert policies.client.failures + placed.client.failures == []
    assert len(pods(stage)) == 4
