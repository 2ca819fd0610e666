"""What is made free for a gang is the gang's, where places and not units are scarce: once on each control plane."""

from __future__ import annotations

import pytest

from loadtests.shared.pods import EXTENDER, Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena

pytestmark = pytest.mark.timeout(300)


def with_port(made: Json) -> Json:
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    return made


def classes(arena: Arena, **values: tuple[int, str]) -> dict[str, str]:
    """Priority classes of this test's own, by a short name."""
    for name, (value, policy) in values.items():
        body = {"metadata": {"name": f"{arena.namespace}-{name}"}, "value": value, "preemptionPolicy": policy}
        arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    return {name: f"{arena.namespace}-{name}" for name in values}


def test_a_single_pod_that_waits_does_not_take_the_port_that_the_first_victim_leaves(arena: Arena) -> None:
    arena.nodes(2)
    named = classes(arena, high=(1000, "PreemptLowerPriority"), same=(1000, "Never"))
    low = arena.create(*(with_port(arena.pod(f"low-{number}", EXTENDER)) for number in range(2)))
    arena.until_bound(low)
    [other] = arena.create(with_port(arena.pod("other", EXTENDER, priority_class=named["same"])))
    arena.until_rejected([other])
    gang = arena.gang("top", 2, EXTENDER, cpu=1, priority_class=named["high"])
    arena.until_bound(arena.create(*map(with_port, gang)))
    assert other not in arena.bound()
    assert len(arena.report().disrupted) == 2


def test_pods_that_a_job_makes_anew_do_not_take_the_ports_that_they_have_left(arena: Arena) -> None:
    arena.nodes(2)
    named = classes(arena, high=(1000, "PreemptLowerPriority"))
    template = with_port(arena.pod("low", EXTENDER))
    body: Json = {
        "metadata": {"name": "low"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "backoffLimit": 50,
            "template": {"metadata": template["metadata"] | {"name": ""}, "spec": template["spec"]},
        },
    }
    arena.api.post(f"/apis/batch/v1/namespaces/{arena.namespace}/jobs", body)
    eventually(lambda: len(arena.bound()) == 2, what="the pods of the Job")
    gang = arena.gang("top", 2, EXTENDER, cpu=1, priority_class=named["high"])
    arena.until_bound(arena.create(*map(with_port, gang)))
    assert len(arena.report().disrupted) == 2
