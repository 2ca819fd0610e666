"""Who must go for whom: never for equals, no more than needed, and no gang is broken."""

from __future__ import annotations

import pytest

from tests.conformance.site import EXTENDER, NOBODY, PURE, Json, Site, condition
from tests.controlplane.deadline import eventually

both = pytest.mark.parametrize("scheduler", [PURE, EXTENDER])


@both
def test_a_pod_of_lower_priority_gives_way(site: Site, scheduler: str) -> None:
    node, high = site.node(), site.priority(1000)
    site.put("victim", scheduler, cpu=8)
    urgent = site.api.post(site.pods_at(), site.pod("urgent", scheduler, cpu=8, priority_class=high))
    assert site.until_bound(["urgent"]) == {"urgent": node}
    assert "victim" not in site.pods()
    told = site.until_told("Preempted", "victim")
    assert told["note"] == f"Preempted by pod {urgent['metadata']['uid']} on node {node}"
    assert (told["type"], told["action"]) == ("Normal", "Preempting")


@both
def test_an_equal_does_not(site: Site, scheduler: str) -> None:
    site.node()
    equal = site.priority(1000)
    site.put("there", scheduler, cpu=8, priority_class=equal)
    [lost] = site.create(site.pod("equal", scheduler, cpu=8, priority_class=equal))
    assert "preemption: 0/" in site.until_rejected(lost)
    assert site.settles(lambda: set(site.bound())) == {"there"}


def test_who_never_preempts_waits(site: Site) -> None:
    site.node()
    polite = site.priority(1000, preemptionPolicy="Never")
    site.put("there", PURE, cpu=8)
    [lost] = site.create(site.pod("polite", PURE, cpu=8, priority_class=polite))
    site.until_rejected(lost)
    assert site.settles(lambda: set(site.bound())) == {"there"}
    site.delete("there")
    site.until_bound([lost])


def test_nobody_goes_where_it_would_not_help(site: Site) -> None:
    site.node(cpu=4)
    high = site.priority(1000)
    site.put("there", PURE, cpu=4)
    [lost] = site.create(site.pod("huge", PURE, cpu=5, priority_class=high))
    site.until_rejected(lost)
    assert site.settles(lambda: set(site.bound())) == {"there"}


@both
def test_no_more_go_than_are_needed_and_the_lowest_first(site: Site, scheduler: str) -> None:
    site.node(cpu=6)
    for value in (30, 10, 20):
        site.put(f"p{value}", scheduler, cpu=2, priority_class=site.priority(value))
    urgent = site.create(site.pod("urgent", scheduler, cpu=2, priority_class=site.priority(1000)))
    site.until_bound(urgent)
    assert site.pods().keys() == {"p30", "p20", "urgent"}


def test_the_node_with_the_lower_victims_is_chosen(site: Site) -> None:
    first, second = site.nodes(2)
    for node, value in ((first, 20), (second, 10)):
        site.put(
            f"p{value}", PURE, cpu=8, priority_class=site.priority(value), selector={"kubernetes.io/hostname": node}
        )
    site.create(site.pod("urgent", PURE, cpu=8, priority_class=site.priority(1000)))
    assert site.until_bound(["urgent"]) == {"urgent": second}
    assert "p20" in site.pods()


def test_a_node_where_no_budget_is_broken_is_chosen(site: Site) -> None:
    first, second = site.nodes(2)
    for node, name in ((first, "guarded"), (second, "free")):
        body = site.pod(name, PURE, cpu=8, selector={"kubernetes.io/hostname": node})
        body["metadata"]["labels"] = {"app": name}
        site.create(body)
        site.until_phase(name, "Running")
    budgets = site.at("poddisruptionbudgets", group="policy/v1")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    site.api.post(
        budgets, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": spec}
    )

    def reckoned() -> bool:
        status = site.api.get(f"{budgets}/a").get("status", {})
        return bool(status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0)

    eventually(reckoned, what="the budget")
    # kube-scheduler is told of it by a watch of its own.
    site.settles(reckoned, during=0.3)
    site.create(site.pod("urgent", PURE, cpu=8, priority_class=site.priority(1000)))
    assert site.until_bound(["urgent"]) == {"urgent": second}


def held(site: Site, name: str) -> Json:
    """A pod on its node whose end can be looked at: a finalizer keeps it, and its containers take their time, for a
    kubelet says of them that they have ended, and then their room is free."""
    body = site.pod(name, PURE, cpu=8)
    body["metadata"]["annotations"] = {"escher.dev/stop-seconds": "20"}
    body["metadata"]["finalizers"] = ["conformance.test/hold"]
    site.create(body)
    site.until_bound([name])
    return site.until_phase(name, "Running")


def test_while_a_victim_is_going_the_place_is_the_preemptors(site: Site) -> None:
    node = site.node()
    held(site, "victim")
    site.create(site.pod("urgent", PURE, cpu=8, priority_class=site.priority(1000)))
    eventually(lambda: site.read("urgent")["status"].get("nominatedNodeName") == node, what="the nomination")
    eventually(lambda: "deletionTimestamp" in site.read("victim")["metadata"], what="the victim being told to go")
    said = condition(site.read("victim"), "DisruptionTarget")
    assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
    eventually(lambda: condition(site.read("urgent")).get("reason") == "Unschedulable", what="its condition")
    # Room that comes there is not for somebody less urgent.
    site.patch_node(node, status={"allocatable": {"cpu": "16"}})
    site.until_bound(["urgent"])
    site.api.patch(site.pods_at("victim"), {"metadata": {"finalizers": None}})
    eventually(lambda: "victim" not in site.pods(), what="the victim's end")


def test_a_gang_at_its_quorum_is_not_broken_where_one_of_it_is_worth_as_much(site: Site) -> None:
    site.nodes(2)
    urgent = site.priority(1000)
    low, high = site.gang("train", 2, cpu=8)
    high["spec"]["priorityClassName"] = urgent
    members = site.create(low, high)
    site.until_bound(members)
    [lost] = site.create(site.pod("urgent", EXTENDER, cpu=8, priority_class=urgent))
    site.until_rejected(lost)
    assert site.settles(lambda: set(site.bound())) == set(members)


def test_a_gang_at_its_quorum_is_taken_as_a_whole(site: Site) -> None:
    """kube-scheduler evicts the one that is in its way, and Escher the rest."""
    site.nodes(2)
    members = site.create(*site.gang("train", 2, cpu=8))
    site.until_bound(members)
    urgent = site.create(site.pod("urgent", EXTENDER, cpu=8, priority_class=site.priority(1000)))
    site.until_bound(urgent)
    eventually(lambda: set(site.pods()) == set(urgent), what="the whole gang gone")


def test_who_is_of_no_gang_goes_instead(site: Site) -> None:
    site.nodes(3)
    members = site.create(*site.gang("train", 2, cpu=8))
    site.until_bound(members)
    site.put("lonely", cpu=8)
    urgent = site.create(site.pod("urgent", EXTENDER, cpu=8, priority_class=site.priority(1000)))
    site.until_bound(urgent)
    assert site.pods().keys() == {*members, *urgent}


def test_a_gang_makes_room_for_itself_as_a_whole(site: Site) -> None:
    site.nodes(2)
    high = site.priority(1000)
    low = [site.put(f"low-{index}", cpu=8)["metadata"]["name"] for index in range(2)]
    large = site.create(*site.gang("large", 3, cpu=8, priority_class=high))
    site.until_rejected(*large)
    assert site.settles(lambda: set(site.bound())) == set(low)
    site.delete(*large)
    members = site.create(*site.gang("train", 2, cpu=8, priority_class=high))
    site.until_bound(members)
    assert not set(low) & site.pods().keys()


def test_pods_that_wait_are_nobodys_victims(site: Site) -> None:
    site.node()
    site.create(site.pod("pending", NOBODY, cpu=8))
    site.put("urgent", PURE, cpu=8, priority_class=site.priority(1000))
    assert "pending" in site.pods()
