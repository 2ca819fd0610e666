"""How pods end on their nodes: what a watch tells of them on their way out, and who learns how they ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.site import NOBODY, Json, Site, condition
from tests.controlplane.deadline import eventually

MIRROR = "kubernetes.io/config.mirror"

RUNNING = ("Running", False)
LEAVING = ("Running", True)
FAILED = ("Failed", True)
SUCCEEDED = ("Succeeded", True)
GONE = ("gone", True)


def running(site: Site, name: str = "a", *, run_seconds: float | None = None, grace: int = 30, **keys: str) -> Json:
    """A pod that runs, whose containers end as `keys` say."""
    body = site.pod(name, NOBODY, run_seconds=run_seconds, grace=grace)
    body["metadata"]["annotations"] |= {f"escher.dev/{key.replace('_', '-')}": value for key, value in keys.items()}
    site.create(body)
    site.bind(name, "node-0")
    return site.until_phase(name, "Running")


def step(event: Json) -> tuple[str, bool]:
    """A pod's phase, or that it is gone, and whether it is being deleted."""
    seen = event["object"]
    if event["type"] == "DELETED":
        return GONE
    return seen["status"]["phase"], "deletionTimestamp" in seen["metadata"]


def end_of(site: Site, begun: Json, act: Callable[[], object]) -> list[Json]:
    """`act` is done; what a watch tells of the pod until it is gone, without what repeats the step before."""
    version = begun["metadata"]["resourceVersion"]
    told: list[Json] = []
    act()
    with site.watch(site.pods_at(), resourceVersion=version) as events:
        for event in events:
            if event["object"]["metadata"]["name"] != begun["metadata"]["name"]:
                continue
            if not told or step(event) != step(told[-1]):
                told.append(event)
            if event["type"] == "DELETED":
                return told
    raise AssertionError(f"it is still there: {[step(each) for each in told]}")


def delete(site: Site, name: str = "a", **options: Any) -> Callable[[], object]:
    return lambda: site.api.delete(site.pods_at(name), options)


def evict(site: Site, name: str = "a", **options: Any) -> Callable[[], object]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return lambda: site.api.post(site.pods_at(name, "eviction"), body)


def exits(pod: Json) -> list[tuple[int, str]]:
    return [
        (each["state"]["terminated"]["exitCode"], each["state"]["terminated"]["reason"])
        for each in pod["status"]["containerStatuses"]
    ]


@pytest.mark.parametrize("end", [delete, evict])
def test_a_pod_that_is_told_to_end_has_failed_before_it_is_gone(
    site: Site, end: Callable[[Site], Callable[[], object]]
) -> None:
    told = end_of(site, running(site), end(site))
    assert [step(each) for each in told][-3:] == [LEAVING, FAILED, GONE]
    for each in told[-2:]:
        assert each["object"]["status"]["phase"] == "Failed"
        assert exits(each["object"]) == [(143, "Error")]
        for kind in ("Ready", "ContainersReady"):
            said = condition(each["object"], kind)
            assert (said["status"], said["reason"]) == ("False", "PodFailed")


def test_it_has_succeeded_if_its_containers_end_well(site: Site) -> None:
    told = end_of(site, running(site, stop_exit_code="0"), delete(site))
    assert [step(each) for each in told] == [LEAVING, SUCCEEDED, GONE]
    assert exits(told[1]["object"]) == [(0, "Completed")]
    assert condition(told[1]["object"], "Ready")["reason"] == "PodCompleted"


def test_its_containers_end_in_their_own_time(site: Site) -> None:
    site.api.delete(site.pods_at(running(site, stop_seconds="1.5")["metadata"]["name"]))
    assert site.settles(lambda: step({"type": "", "object": site.read("a")}), during=0.8) == LEAVING
    eventually(lambda: "a" not in site.pods(), what="the end")


def test_its_containers_are_killed_when_the_grace_is_over(site: Site) -> None:
    told = end_of(site, running(site, stop_seconds="300", stop_exit_code="0", grace=1), delete(site))
    assert [step(each) for each in told] == [LEAVING, FAILED, GONE]
    assert exits(told[1]["object"]) == [(137, "Error")]


def test_a_later_deletion_with_less_grace_kills_them_earlier(site: Site) -> None:
    begun = running(site, stop_seconds="300", grace=200)
    site.api.delete(site.pods_at("a"))
    told = end_of(site, begun, delete(site, gracePeriodSeconds=1))
    assert [step(each) for each in told] == [LEAVING, FAILED, GONE]


def test_without_grace_nobody_learns_how_it_ended(site: Site) -> None:
    told = end_of(site, running(site, stop_seconds="5"), delete(site, gracePeriodSeconds=0))
    assert [step(each) for each in told] == [LEAVING, GONE]
    assert told[-1]["object"]["status"]["phase"] == "Running"
    told = end_of(site, running(site, "b", stop_seconds="5", grace=0), evict(site, "b"))
    assert [step(each) for each in told][-2:] == [LEAVING, GONE]
    assert told[-1]["object"]["status"]["phase"] == "Running"


@pytest.mark.parametrize(("phase", "run_seconds"), [("Running", None), ("Succeeded", 0)])
def test_what_was_due_for_a_pod_does_not_come_to_the_next_of_its_name(
    site: Site, phase: str, run_seconds: int | None
) -> None:
    names = [f"a{number}" for number in range(30)]
    for name in names:
        site.create(site.pod(name, NOBODY, run_seconds=run_seconds))
        site.bind(name, "node-0")
    for name in names:
        site.until_phase(name, phase)
    anew = {}
    for name in names:
        site.api.delete(site.pods_at(name))
        anew[name] = site.api.post(site.pods_at(), site.pod(name, NOBODY))["metadata"]["uid"]

    def found() -> dict[str, tuple[str, str]]:
        return {name: (each["metadata"]["uid"], each["status"]["phase"]) for name, each in site.pods().items()}

    assert site.settles(found) == {name: (uid, "Pending") for name, uid in anew.items()}


@pytest.mark.parametrize("end", [delete, evict])
def test_a_pod_that_had_ended_is_only_removed(site: Site, end: Callable[[Site], Callable[[], object]]) -> None:
    running(site, run_seconds=0.1, stop_seconds="20")
    done = site.until_phase("a", "Succeeded")
    told = end_of(site, done, end(site))
    assert {step(each) for each in told[:-1]} <= {("Succeeded", False), SUCCEEDED}
    assert told[-1]["object"]["status"]["phase"] == "Succeeded"
    assert exits(told[-1]["object"]) == [(0, "Completed")]


def test_an_evicted_pod_says_so_to_its_end(site: Site) -> None:
    told = end_of(site, running(site), evict(site))
    for each in told[1:]:
        said = condition(each["object"], "DisruptionTarget")
        assert (said["status"], said["reason"]) == ("True", "EvictionByEvictionAPI")
    assert condition(told[-1]["object"])["status"] == "True"


def test_a_pod_held_by_a_finalizer_has_ended_and_stays(site: Site) -> None:
    begun = running(site)
    site.api.patch(site.pods_at("a"), {"metadata": {"finalizers": ["conformance.test/hold"]}})
    site.api.delete(site.pods_at("a"))
    eventually(lambda: site.read("a")["status"]["phase"] == "Failed", what="its phase")
    eventually(lambda: site.read("a")["metadata"]["deletionGracePeriodSeconds"] == 0, what="the end of its grace")
    assert site.settles(lambda: step({"type": "", "object": site.read("a")})) == FAILED
    told = end_of(site, begun, lambda: site.api.patch(site.pods_at("a"), {"metadata": {"finalizers": None}}))
    assert step(told[-1]) == GONE


def test_a_pod_that_never_began_has_failed(site: Site) -> None:
    name = f"{site.namespace}-n0"
    site.create(site.pod("a", NOBODY, grace=30))
    site.bind("a", name)
    begun = site.read("a")
    site.api.delete(site.pods_at("a"))
    assert site.settles(lambda: step({"type": "", "object": site.read("a")})) == ("Pending", True)
    told = end_of(site, begun, site.node)
    assert [step(each) for each in told] == [("Pending", True), FAILED, GONE]
    assert "containerStatuses" not in told[1]["object"]["status"]


def mirror(site: Site, **annotations: str) -> Json:
    node = site.api.get(site.node_at("node-0"))
    body = site.pod("a", NOBODY, grace=30)
    body["metadata"]["annotations"] |= {MIRROR: "0f3a", "kubernetes.io/config.source": "file", **annotations}
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": node["metadata"]["uid"], "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    body["spec"]["nodeName"] = "node-0"
    return body


def test_a_mirror_pod_is_evicted_like_any_other_and_has_no_end(site: Site) -> None:
    """It is the kubelet that makes it anew, and kubectl drain that leaves it alone."""
    site.create(mirror(site))
    begun = site.until_phase("a", "Running")
    told = end_of(site, begun, evict(site))
    assert [step(each) for each in told][-2:] == [LEAVING, GONE]
    assert told[-1]["object"]["status"]["phase"] == "Running"
    assert condition(told[-1]["object"], "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


def test_a_budget_guards_a_mirror_pod_too(site: Site) -> None:
    body = mirror(site)
    body["metadata"]["labels"] = {"app": "x"}
    site.create(body)
    site.until_phase("a", "Running")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    budgets = site.at("poddisruptionbudgets", group="policy/v1")
    site.api.post(
        budgets, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": spec}
    )
    eventually(lambda: site.api.get(f"{budgets}/a").get("status", {}).get("currentHealthy") == 1, what="the budget")
    site.refusal(evict(site), 429, "TooManyRequests")
    assert "deletionTimestamp" not in site.read("a")["metadata"]


def test_a_mirror_pod_is_on_a_node_and_remains_one(site: Site) -> None:
    body = mirror(site)
    del body["spec"]["nodeName"]
    said = site.refusal(lambda: site.create(body), 422, "Invalid")
    assert "must set spec.nodeName if mirror pod annotation is set" in said
    site.create(mirror(site))
    for value in (None, "other"):
        said = site.refusal(lambda value=value: site.annotate(site.pods_at("a"), **{MIRROR: value}), 422, "Invalid")  # type: ignore[misc]
        assert "may not remove or update mirror pod annotation" in said
    plain = site.pod("b", NOBODY)
    plain["spec"]["nodeName"] = "node-0"
    site.create(plain)
    said = site.refusal(lambda: site.annotate(site.pods_at("b"), **{MIRROR: "1"}), 422, "Invalid")
    assert "may not add mirror pod annotation" in said
