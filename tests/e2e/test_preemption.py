"""Preemption: kube-scheduler's never breaks the quorum of a bound gang; ours makes room for a gang as a whole."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import GANG_APPROACHES, Arena, stays

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("scheduler", GANG_APPROACHES),
]


@pytest.fixture
def urgent(arena: Arena) -> str:
    """A priority class above that of every other pod."""
    name = f"{arena.namespace}-urgent"
    arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 1000})
    return name


def test_an_ordinary_pod_gives_way(arena: Arena, scheduler: str, urgent: str) -> None:
    arena.nodes(1)
    [victim] = arena.create(arena.pod("victim", scheduler, cpu=8))
    arena.until_bound([victim])
    arena.until_bound(arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=urgent)))
    assert victim not in arena.pods()
    assert arena.report().disrupted == [f"{arena.namespace}/{victim}"]


@pytest.mark.parametrize("size", [1, 2], ids=["a pod", "a gang"])
def test_units_that_a_lower_pod_holds_are_left_to_a_higher_one(
    arena: Arena, scheduler: str, urgent: str, size: int
) -> None:
    """Where only the ledger matches them kube-scheduler's own fit finds nothing lacking, and offers no victims."""
    [node] = arena.nodes(1)
    arena.set_resource("licence", 2, node)
    asks = {arena.key("licence"): 1}
    lower = arena.create(*(arena.pod(f"low-{number}", scheduler, cpu=1, **asks) for number in range(2)))
    arena.until_bound(lower)
    gang: dict[str, Any] = {"gang": "high", "quorum": 2} if size > 1 else {}
    higher = [
        arena.pod(f"high-{number}", scheduler, cpu=1, priority_class=urgent, **gang, **asks) for number in range(size)
    ]
    arena.until_bound(arena.create(*higher))
    assert len(arena.report().disrupted) == size


def protected(members: list[Json], urgent: str) -> list[Json]:
    """The gang, one member of which is as urgent as anybody."""
    members[-1]["spec"]["priorityClassName"] = urgent
    return members


@pytest.mark.older
def test_a_gang_at_its_quorum_leaves_as_a_whole(arena: Arena, scheduler: str, urgent: str) -> None:
    arena.nodes(4)
    members = arena.create(*arena.gang("train", 4, scheduler, cpu=8))
    arena.until_bound(members)
    wanting = arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=urgent))
    arena.until_bound(wanting)
    eventually(lambda: not arena.pods().keys() & set(members), what="the end of the whole gang")


def test_a_gang_at_its_quorum_with_a_member_of_the_same_priority_does_not(
    arena: Arena, scheduler: str, urgent: str
) -> None:
    arena.nodes(4)
    members = arena.create(*protected(arena.gang("train", 4, scheduler, cpu=8), urgent))
    arena.until_bound(members)
    wanting = arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=urgent))
    arena.until_rejected(wanting)
    assert stays(lambda: arena.bound().keys(), what="the pods bound") == set(members)
    report = arena.report()
    assert report.disrupted == []
    assert report.gangs[f"{arena.namespace}/train"].left_below_quorum == 0


def test_members_beyond_the_quorum_do_and_not_one_more(arena: Arena, scheduler: str, urgent: str) -> None:
    """Two pods at once could each be offered another of the same two members that may go."""
    arena.nodes(5)
    members = arena.create(*protected(arena.gang("train", 5, scheduler, quorum=4, cpu=8), urgent))
    arena.until_bound(members)
    wanting = arena.create(
        *(arena.pod(f"urgent-{index}", scheduler, cpu=8, priority_class=urgent) for index in range(3))
    )
    eventually(lambda: len(arena.bound(wanting)) == 1, what="one of the urgent pods")
    assert len(stays(lambda: arena.bound(members).keys(), what="the members bound")) == 4
    report = arena.report()
    assert len(report.disrupted) == 1
    assert report.gangs[f"{arena.namespace}/train"].left_below_quorum == 0


def test_whoever_is_of_no_gang_goes_first_when_a_gang_cannot(arena: Arena, scheduler: str, urgent: str) -> None:
    arena.nodes(3)
    members = arena.create(*arena.gang("train", 2, scheduler, cpu=8))
    [lonely] = arena.create(arena.pod("lonely", scheduler, cpu=8))
    arena.until_bound([*members, lonely])
    wanting = arena.create(arena.pod("urgent", scheduler, cpu=8, priority_class=urgent))
    arena.until_bound(wanting)
    assert arena.pods().keys() == {*members, *wanting}


def test_a_gang_evicts_nobody_for_the_sake_of_half_of_itself(arena: Arena, scheduler: str, urgent: str) -> None:
    arena.nodes(2)
    low = arena.create(*(arena.pod(f"low-{index}", scheduler, cpu=8) for index in range(2)))
    arena.until_bound(low)
    members = arena.create(*arena.gang("train", 3, scheduler, cpu=8, priority_class=urgent))
    arena.until_rejected(members)
    assert stays(lambda: arena.bound().keys(), what="the pods bound") == set(low)
    assert arena.report().disrupted == []
    arena.nodes(3)
    arena.until_bound(members)


def test_for_a_gang_of_higher_priority_a_whole_gang_leaves_and_nobody_who_could_stay(
    arena: Arena, scheduler: str, urgent: str
) -> None:
    arena.nodes(4)
    low = arena.create(*arena.gang("low", 3, scheduler, cpu=8))
    arena.until_bound(low)
    high = arena.create(arena.pod("high", scheduler, cpu=6, priority_class=urgent))
    arena.until_bound(high)
    small = arena.create(arena.pod("small", scheduler, cpu=2))
    arena.until_bound(small)
    members = arena.create(*arena.gang("train", 3, scheduler, cpu=8, priority_class=urgent))
    arena.until_bound(members)
    assert arena.bound(high).keys() == set(high)
    assert arena.bound(small).keys() == set(small)
    report = arena.report()
    assert sorted(report.disrupted) == [f"{arena.namespace}/{name}" for name in low]
    assert {each["note"] for each in arena.events("GangPreempts")} == {
        "gang train: 3 pods of lower priority are evicted for it"
    }
    assert len(arena.events("PreemptedByGang")) == 3


def guard(arena: Arena, gang: str, least: int) -> None:
    """A disruption budget for the gang, whose status is there."""
    path = f"/apis/policy/v1/namespaces/{arena.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"escher.dev/gang": gang}}
    arena.api.post(path, {"metadata": {"name": gang}, "spec": {"minAvailable": least, "selector": selector}})
    eventually(lambda: arena.api.get(f"{path}/{gang}").get("status", {}).get("observedGeneration"), what="the budget")


def allowed(arena: Arena, gang: str) -> int:
    path = f"/apis/policy/v1/namespaces/{arena.namespace}/poddisruptionbudgets/{gang}"
    found: int = arena.api.get(path)["status"]["disruptionsAllowed"]
    return found


@pytest.mark.parametrize("least", [1, 0])
def test_a_gang_leaves_within_its_disruption_budget_and_past_it_where_there_is_no_other_room(
    arena: Arena, scheduler: str, urgent: str, least: int
) -> None:
    arena.nodes(3)
    guard(arena, "low", least)
    low = arena.create(*arena.gang("low", 3, scheduler, cpu=8))
    arena.until_bound(low)
    eventually(lambda: allowed(arena, "low") == 3 - least, what="the budget knowing that they run")
    members = arena.create(*arena.gang("train", 3, scheduler, cpu=8, priority_class=urgent))
    arena.until_bound(members)
    assert sorted(arena.report().disrupted) == [f"{arena.namespace}/{name}" for name in low]
    notes = [each["note"] for each in arena.events("PreemptedByGang")]
    assert len(notes) == 3
    assert sum("despite disruption budget" in note for note in notes) == least


LIES = ("a DaemonSet that is nowhere", "a DaemonSet that wants no pod", "mirror of its node")


@pytest.mark.parametrize("lie", LIES)
def test_what_pods_say_of_themselves_keeps_no_room_from_a_gang(
    arena: Arena, scheduler: str, urgent: str, lie: str
) -> None:
    [node] = arena.nodes(1)
    low = arena.pod("low", scheduler, cpu=6)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": str(uuid4())}
    if lie == "a DaemonSet that wants no pod":
        owner["uid"] = daemon_set(arena, {"no": "where"})
    elif lie == "mirror of its node":
        uid = arena.api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        low["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
        low["spec"]["nodeName"] = node
    low["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    low["metadata"]["labels"]["app"] = "agent"
    victims = arena.create(low)
    # Else the gang may be planned for the free node while kube-scheduler binds the pod there. A real cluster's garbage
    # collector deletes a pod whose owner is nowhere.
    eventually(lambda: arena.bound(victims) or not arena.pods().keys() & set(victims), what="the pod's node, or end")
    members = arena.create(*arena.gang("train", 1, scheduler, cpu=8, priority_class=urgent))
    arena.until_bound(members)
    assert not arena.bound(victims)


def daemon_set(arena: Arena, node_selector: dict[str, str] | None = None) -> str:
    """A DaemonSet `agent` is there. Its UID; no controller makes its pods."""
    labels, containers = {"app": "agent"}, [{"name": "main", "image": "none"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "nodeSelector": node_selector or {}}}
    body = {"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    made = arena.api.post(f"/apis/apps/v1/namespaces/{arena.namespace}/daemonsets", body)
    return str(made["metadata"]["uid"])


def test_pods_of_a_daemon_set_never_leave(arena: Arena, scheduler: str, urgent: str) -> None:
    labels = {"app": "agent"}
    arena.nodes(2)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": daemon_set(arena)}
    agents = [arena.pod(f"agent-{index}", scheduler, cpu=1) for index in range(2)]
    for each in agents:
        each["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        each["metadata"]["labels"] |= labels
    arena.until_bound(arena.create(*agents))
    members = arena.create(*arena.gang("train", 2, scheduler, cpu=8, priority_class=urgent))
    arena.until_rejected(members)
    stays(lambda: len(arena.bound()), during=3, what="the number of pods bound")
    assert arena.report().disrupted == []


def test_while_others_leave_for_a_gang_no_pod_of_no_higher_priority_takes_the_room_beside_them(
    arena: Arena, scheduler: str, urgent: str
) -> None:
    """None of the profiles of that kube-scheduler: of another process nobody heeds its nominations."""
    arena.nodes(2)
    low = [arena.pod(f"low-{index}", scheduler, cpu=6) for index in range(2)]
    for each in low:
        # They take their time.
        each["metadata"]["finalizers"] = ["e2e.test/hold"]
    victims = arena.create(*low)
    arena.until_bound(victims)
    members = arena.create(*arena.gang("train", 2, scheduler, cpu=8, priority_class=urgent))
    try:
        eventually(lambda: all(nomination(arena, name) for name in members), what="the nomination of both", within=60)
        thieves = arena.create(*(arena.pod(f"thief-{by}", by, cpu=2) for by in GANG_APPROACHES))
        stays(lambda: arena.bound(thieves), during=3, what="the others bound")
        assert arena.bound(thieves) == {}
    finally:
        for name in victims:
            arena.api.patch(f"{arena.pods_path}/{name}", {"metadata": {"finalizers": None}})
    arena.until_bound(members)


def nomination(arena: Arena, name: str) -> str:
    found: str = arena.pods()[name]["status"].get("nominatedNodeName", "")
    return found
