"""Gangs behind Escher's scheduling gate: kube-scheduler does not know of them before there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.shipped import versions
from loadtests.shared.pods import LEDGER, PURE, Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena, away, stays

pytestmark = pytest.mark.timeout(300)

POLICY = Path(__file__).parents[2] / "deploy/policies/gate-gangs.yaml"


def gated(arena: Arena, name: str, size: int, **more: Any) -> list[Json]:
    """Each member fills a node."""
    return arena.gang(name, size, cpu=8, gated=True, **more)


def waits(arena: Arena, name: str) -> None:
    path = f"/v1/namespaces/{arena.namespace}/gangs/{name}"
    # The service may not have heard of its pods yet, and knows of no such gang.
    eventually(lambda: arena.service.raw("GET", path).json().get("phase") == "waiting", what="the gang waiting")


def at_gate(arena: Arena) -> set[str]:
    return {name for name, each in arena.pods().items() if each["spec"].get("schedulingGates")}


def test_one_that_fits_is_let_through_when_its_last_member_is_there(arena: Arena) -> None:
    arena.nodes(3)
    members = gated(arena, "train", 3)
    early = arena.create(*members[:2])
    assert stays(lambda: at_gate(arena), during=1.0, what="those at the gate") == set(early)
    late = arena.create(members[2])
    arena.until_bound([*early, *late])
    assert at_gate(arena) == set()
    assert arena.events("FailedScheduling") == []


@pytest.mark.older
def test_one_that_waits_is_never_tried_says_why_and_comes_when_there_is_room(arena: Arena) -> None:
    arena.nodes(3)
    [there] = arena.create(arena.pod("there", cpu=8))
    arena.until_bound([there])
    members = arena.create(*gated(arena, "train", 3))
    waits(arena, "train")
    [told] = eventually(lambda: arena.events("GangWaiting"), what="the event") or []
    assert told["regarding"]["name"] == "train-0"
    assert "2 of 3 members fit" in told["note"]
    assert "2 of 3 members fit" in arena.gang_state("train")["reason"]
    # Pods that come and go wake whoever kube-scheduler has turned away; these it has not even seen.
    for number in range(3):
        passing = arena.create(arena.pod(f"passing-{number}", cpu=1))
        arena.until_bound(passing)
        arena.delete(*passing)
    assert at_gate(arena) == set(members)
    arena.delete(there)
    arena.until_bound(members)
    assert arena.events("FailedScheduling") == []


def test_it_takes_turns_with_gangs_that_have_no_gate(arena: Arena) -> None:
    arena.nodes(3)
    there = arena.create(*(arena.pod(f"there-{number}", cpu=8) for number in range(3)))
    arena.until_bound(there)
    first = arena.create(*gated(arena, "first", 3))
    waits(arena, "first")
    second = arena.create(*arena.gang("second", 3, cpu=8))
    waits(arena, "second")
    arena.delete(*there)
    arena.until_bound(first)
    assert arena.bound(second) == {}
    arena.delete(*first)
    arena.until_bound(second)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_it_waits_while_the_service_is_away_and_is_placed_by_the_one_that_follows(arena: Arena, killed: bool) -> None:
    arena.nodes(3)
    waiting = arena.create(*gated(arena, "waiting", 4))
    waits(arena, "waiting")
    with away(arena, killed=killed):
        meanwhile = arena.create(*gated(arena, "meanwhile", 2))
        arena.nodes_unseen(3)
        assert stays(lambda: arena.bound(), during=1.0, what="the members bound") == {}
    arena.until_bound([*waiting, *meanwhile], within=40)


def test_a_gate_of_others_is_waited_for_and_the_gang_says_so(arena: Arena) -> None:
    arena.nodes(2)
    members = gated(arena, "train", 2)
    members[1]["spec"]["schedulingGates"].append({"name": "queue.example/quota"})
    names = arena.create(*members)
    eventually(lambda: "not Escher's" in arena.gang_state("train")["reason"], what="what it waits for")
    assert stays(lambda: at_gate(arena), during=1.0, what="those at the gate") == set(names)
    ours_alone = {"spec": {"schedulingGates": [{"name": "escher.dev/gang"}]}}
    arena.api.patch(f"{arena.pods_path}/train-1", ours_alone)
    arena.until_bound(names)


def test_a_pod_of_no_gang_is_told_that_nobody_will_let_it_through(arena: Arena) -> None:
    arena.nodes(1)
    [lost] = arena.create(arena.pod("lost", gated=True))
    [told] = eventually(lambda: arena.events("InvalidGang"), what="the event") or []
    assert told["regarding"]["name"] == lost
    assert "escher.dev/gang" in told["note"]
    assert "remove the gate" in told["note"]


@pytest.mark.skipif(not versions.chosen().marks_by_default, reason="no MutatingAdmissionPolicy v1: docs/upgrade.md")
class TestThePolicyForAllGangs:
    """`deploy/policies/gate-gangs.yaml`: the API server puts the gate on."""

    @pytest.fixture(autouse=True)
    def policy(self, arena: Arena) -> None:
        collection = "/apis/admissionregistration.k8s.io/v1"
        policy, binding = yaml.safe_load_all(POLICY.read_text())
        arena.cluster_wide(f"{collection}/mutatingadmissionpolicies", policy)
        arena.cluster_wide(f"{collection}/mutatingadmissionpolicybindings", binding)

        def in_force() -> bool:
            answer = arena.api.post(arena.pods_path, arena.gang("probe", 1)[0], dryRun="All")
            return "schedulingGates" in answer["spec"]

        eventually(in_force, what="the policy")

    def test_gates_gangs_of_the_extender_and_nobody_else(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        placed = arena.pod("placed", gang="placed", quorum=1)
        placed["spec"]["nodeName"] = node
        queued = arena.gang("queued", 1)[0]
        queued["spec"]["schedulingGates"] = [{"name": "queue.example/quota"}]
        made = {
            "member": arena.gang("member", 1)[0],
            "ledger": arena.gang("ledger", 1, LEDGER)[0],
            "queued": queued,
            "gated": arena.gang("gated", 1, gated=True)[0],
            "plain": arena.pod("plain"),
            "pure": arena.gang("pure", 1, PURE)[0],
            "placed": placed,
        }
        gates = {}
        for name, pod in made.items():
            answer = arena.api.post(arena.pods_path, pod, dryRun="All")
            gates[name] = [gate["name"] for gate in answer["spec"].get("schedulingGates") or []]
        assert gates == {
            "member": ["escher.dev/gang"],
            "ledger": ["escher.dev/gang"],
            "queued": ["queue.example/quota", "escher.dev/gang"],
            "gated": ["escher.dev/gang"],
            "plain": [],
            "pure": [],
            "placed": [],
        }

    def test_a_gang_that_says_nothing_of_it_waits_behind_it(self, arena: Arena) -> None:
        arena.nodes(3)
        [there] = arena.create(arena.pod("there", cpu=8))
        arena.until_bound([there])
        members = arena.create(*arena.gang("train", 3, cpu=8))
        waits(arena, "train")
        assert at_gate(arena) == set(members)
        arena.delete(there)
        arena.until_bound(members)
        assert arena.events("FailedScheduling") == []
