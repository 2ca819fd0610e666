"""Where a pod may be: room, selectors, taints, cordons, extended resources; and what is said where it may not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.site import EXTENDER, LEDGER, PROFILES, PURE, Json, Site, condition

ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"
GPU = "example.com/gpu"


def reasons(message: str) -> dict[str, int]:
    """How many nodes were rejected for which reason, from kube-scheduler's message."""
    found = re.match(r"0/(\d+) nodes are available: (.*?)\. ", f"{message} ")
    assert found, message
    counted = (part.split(" ", 1) for part in found[2].split(", "))
    return {reason: int(count) for count, reason in counted}


def nodes_of(message: str) -> int:
    found = re.match(r"0/(\d+) ", message)
    assert found, message
    return int(found[1])


def affine(site: Site, name: str, affinity: Json, scheduler: str = PURE) -> Json:
    body = site.pod(name, scheduler)
    body["spec"]["affinity"] = {"nodeAffinity": affinity}
    return body


def required(*terms: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize("scheduler", [*PROFILES, "default-scheduler"])
def test_a_pod_that_fits_is_bound_told_of_and_runs(site: Site, scheduler: str) -> None:
    node = site.node()
    [name] = site.create(site.pod("a", scheduler, cpu=8))
    assert site.until_bound([name]) == {name: node}
    pod = site.until_phase(name, "Running")
    assert condition(pod)["status"] == "True"
    told = site.until_told("Scheduled", name)
    assert told["note"] == f"Successfully assigned {site.namespace}/a to {node}" or scheduler != PURE
    assert told["type"] == "Normal"


@pytest.mark.parametrize("scheduler", PROFILES)
def test_a_pod_that_fits_nowhere_is_told_why(site: Site, scheduler: str) -> None:
    site.nodes(2, cpu=4)
    [name] = site.create(site.pod("a", scheduler, cpu=5))
    message = site.until_rejected(name)
    counted = reasons(message)
    assert counted == {"Insufficient cpu": 2, ELSEWHERE: nodes_of(message) - 2}
    said = condition(site.read(name))
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    told = site.until_told("FailedScheduling", name)
    assert (told["type"], told["note"]) == ("Warning", message)


def test_every_shortage_of_a_node_is_counted(site: Site) -> None:
    site.node(cpu=4)
    [name] = site.create(site.pod("a", PURE, cpu=5, memory="33Gi"))
    counted = reasons(site.until_rejected(name))
    assert (counted["Insufficient cpu"], counted["Insufficient memory"]) == (1, 1)


def test_what_is_taken_is_not_there_for_others(site: Site) -> None:
    site.node(cpu=4)
    site.put("first", PURE, cpu="2500m")
    [second] = site.create(site.pod("second", PURE, cpu="1501m"))
    site.until_rejected(second)
    site.put("third", PURE, cpu="1500m")


def test_a_finished_pod_takes_nothing(site: Site) -> None:
    site.node(cpu=4)
    site.put("first", PURE, cpu=4, run_seconds=0)
    site.until_phase("first", "Succeeded")
    site.put("second", PURE, cpu=4)


def test_pods_are_counted(site: Site) -> None:
    site.node(pods=1)
    site.put("first", PURE, cpu="1m")
    [second] = site.create(site.pod("second", PURE, cpu="1m"))
    assert reasons(site.until_rejected(second))["Too many pods"] == 1


def test_the_largest_init_container_counts(site: Site) -> None:
    site.node(cpu=4)
    body = site.pod("a", PURE, cpu=1)
    body["spec"]["initContainers"] = [{"name": "init", "image": "none", "resources": {"requests": {"cpu": "5"}}}]
    site.create(body)
    assert "Insufficient cpu" in reasons(site.until_rejected("a"))


def test_containers_are_added_up(site: Site) -> None:
    site.node(cpu=4)
    body = site.pod("a", PURE, cpu=3)
    body["spec"]["containers"].append({"name": "side", "image": "none", "resources": {"requests": {"cpu": "1001m"}}})
    site.create(body)
    assert "Insufficient cpu" in reasons(site.until_rejected("a"))


@pytest.mark.parametrize("scheduler", [EXTENDER, PURE])
def test_a_selector_is_followed(site: Site, scheduler: str) -> None:
    site.node(labels={"disk": "slow"})
    fast = site.node(labels={"disk": "fast"})
    selector = {**site.pool, "disk": "fast"}
    assert site.put("a", scheduler, selector=selector)["spec"]["nodeName"] == fast
    [lost] = site.create(site.pod("b", scheduler, selector={**site.pool, "disk": "none"}))
    message = site.until_rejected(lost)
    assert reasons(message) == {ELSEWHERE: nodes_of(message)}


@pytest.mark.parametrize(
    ("operator", "values", "wanted"),
    [
        ("In", ["b", "c"], {1}),
        ("NotIn", ["a", "b"], {2, 3}),
        ("Exists", [], {0, 1, 2}),
        ("DoesNotExist", [], {3}),
        ("Gt", ["4"], {2}),
        ("Lt", ["6"], {2}),
    ],
)
def test_node_affinity_is_followed(site: Site, operator: str, values: list[str], wanted: set[int]) -> None:
    made = [site.node(labels={"l": label} if label else {}) for label in ("a", "b", "5", "")]
    site.create(affine(site, "a", required(expression("l", operator, *values))))
    [node] = site.until_bound(["a"]).values()
    assert node in {made[index] for index in wanted}


def test_one_term_of_node_affinity_is_enough(site: Site) -> None:
    site.node(labels={"l": "a"})
    other = site.node(labels={"m": "b"})
    site.create(affine(site, "a", required(expression("l", "In", "z"), expression("m", "In", "b"))))
    assert site.until_bound(["a"]) == {"a": other}


@pytest.mark.parametrize("scheduler", [EXTENDER, PURE])
def test_a_node_can_be_named_by_affinity(site: Site, scheduler: str) -> None:
    _, wanted, _ = site.nodes(3)
    fields = [{"key": "metadata.name", "operator": "In", "values": [wanted]}]
    site.create(affine(site, "a", required({"matchFields": fields}), scheduler))
    assert site.until_bound(["a"]) == {"a": wanted}


def test_a_preferred_node_is_taken_when_it_fits_and_another_when_not(site: Site) -> None:
    site.nodes(3)
    preferred = site.node(labels={"l": "best"})
    wish = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": expression("l", "In", "best")}
        ]
    }
    site.create(affine(site, "a", wish))
    assert site.until_bound(["a"]) == {"a": preferred}
    second = affine(site, "b", wish)
    second["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "8"
    site.create(second)
    assert site.until_bound(["b"])["b"] != preferred


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(site: Site, effect: str) -> None:
    tainted = site.node(taints=[{"key": "own", "value": "x", "effect": effect}])
    [lost] = site.create(site.pod("a", PURE))
    assert reasons(site.until_rejected(lost))["node(s) had untolerated taint(s)"] == 1
    for name, toleration in {
        "value": {"key": "own", "operator": "Equal", "value": "x", "effect": effect},
        "any": {"key": "own", "operator": "Exists"},
        "all": {"operator": "Exists"},
    }.items():
        body = site.pod(name, PURE)
        body["spec"]["tolerations"] = [toleration]
        site.create(body)
        assert site.until_bound([name]) == {name: tainted}
    wrong = site.pod("wrong", PURE)
    wrong["spec"]["tolerations"] = [{"key": "own", "operator": "Equal", "value": "y"}]
    site.create(wrong)
    site.until_rejected("wrong")


def test_a_taint_that_advises_is_heeded_when_there_is_another_node(site: Site) -> None:
    site.node(taints=[{"key": "rather", "value": "not", "effect": "PreferNoSchedule"}])
    other = site.node(cpu=1)
    assert site.put("a", PURE)["spec"]["nodeName"] == other
    assert site.put("b", PURE)["spec"]["nodeName"] != other


def test_a_cordoned_node_takes_nobody(site: Site) -> None:
    node = site.node()
    site.cordon(node)
    [lost] = site.create(site.pod("a", PURE))
    assert reasons(site.until_rejected(lost))["node(s) were unschedulable"] == 1


@pytest.mark.parametrize("scheduler", [EXTENDER, PURE])
def test_extended_resources_are_counted_by_node(site: Site, scheduler: str) -> None:
    node = site.node(**{GPU: 4})
    site.node()
    assert site.put("a", scheduler, **{GPU: 3})["spec"]["nodeName"] == node
    [lost] = site.create(site.pod("b", scheduler, **{GPU: 2}))
    assert reasons(site.until_rejected(lost))[f"Insufficient {GPU}"] == 2
    assert site.put("c", scheduler, **{GPU: 1})["spec"]["nodeName"] == node


def test_a_limit_alone_asks_for_an_extended_resource(site: Site) -> None:
    node = site.node(**{GPU: 1})
    body = site.pod("a", PURE)
    body["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}}
    site.create(body)
    assert site.until_bound(["a"]) == {"a": node}
    [lost] = site.create(site.pod("b", PURE, **{GPU: 1}))
    site.until_rejected(lost)


def test_allocatable_counts_and_capacity_does_not(site: Site) -> None:
    node = site.node()
    site.patch_node(node, status={"capacity": {GPU: "2"}})
    [lost] = site.create(site.pod("a", PURE, **{GPU: 2}))
    site.until_rejected(lost)
    site.patch_node(node, status={"allocatable": {GPU: "2"}})
    site.until_bound([lost])


def test_pods_are_spread_over_equal_nodes(site: Site) -> None:
    made = site.nodes(3)
    used = [site.put(f"p{index}", PURE, cpu=2, memory="8Gi")["spec"]["nodeName"] for index in range(3)]
    assert sorted(used) == sorted(made)


def test_a_pod_that_names_its_node_is_asked_nothing(site: Site) -> None:
    node = site.node(cpu=1)
    body: dict[str, Any] = site.pod("a", EXTENDER, cpu=5)
    body["spec"]["nodeName"] = node
    site.create(body)
    site.until_phase("a", "Running")
    assert site.events("Scheduled", "a") == []
    [lost] = site.create(site.pod("b", PURE, cpu="500m"))
    assert "Insufficient cpu" in reasons(site.until_rejected(lost))


def test_a_pod_of_a_scheduler_that_is_not_there_is_left_alone(site: Site) -> None:
    site.node()
    site.create(site.pod("a", "no-such-scheduler"))
    assert site.settles(lambda: (site.bound(), condition(site.read("a")))) == ({}, {})


def test_nowhere_at_all_is_said_of_all_nodes(site: Site) -> None:
    [lost] = site.create(site.pod("a", PURE, cpu=1000))
    message = site.until_rejected(lost)
    assert reasons(message) == {"Insufficient cpu": nodes_of(message)}
    assert nodes_of(message) >= 6


def test_the_fit_of_the_ledgers_profile_leaves_our_domain_to_the_ledger(site: Site) -> None:
    node = site.node()
    # On the node and not in the ledger's care: the fit would see none.
    site.set_resource("r", 2, node)
    site.put("a", LEDGER, **{site.key("r"): 2})
    [lost] = site.create(site.pod("b", LEDGER, **{site.key("r"): 1}))
    counted = reasons(site.until_rejected(lost))
    assert counted["requested ephemeral resources are not free on this node"] == 1
    assert not any(reason.startswith("Insufficient") for reason in counted)
