"""Scene: a cluster as Escher finds it, in the order in which its objects are created.

    lab    another scheduler's gangs, half bound and waiting; a batch scheduler's pods; a quota; and pods of an earlier
           installation of Escher: it is unknown whether their gang was ever whole
    shop   ordinary pods with a budget
    trials empty: for the users who try Escher

Nodes have labels and annotations of the service's domain, as people write them. Their status has what an earlier
installation has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.controlplane.nodes import node
from loadtests.history.asks import Ask, core, create, merge
from loadtests.shared.pods import EXTENDER, Json, pod
from loadtests.shared.reading import POD_GROUP

LAB, SHOP, TRIALS = "lab", "shop", "trials"
COSCHEDULING, BATCH, DEFAULT = "coscheduling", "batch-scheduler", "default-scheduler"
VETERANS = "veteran"
"""Pods that an earlier installation has placed, and that continue to run."""

NODES = 20
CPU_OF_NODE = 16
WEB, BATCHES, VETERAN_COUNT = 100, 96, 4
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/lab/podgroups"
BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"

LEFT_OVER: dict[str, dict[str, str]] = {
    "old-0": {"escher.dev/lab.old-data": "3"},
    "old-1": {"escher.dev/lab.old-data": "3", "escher.dev/shared-old": "7"},
    "old-2": {"escher.dev/lab.old--lb": "1"},
}
"""By node: keys of the service's domain without an EphemeralResource."""
HALF_LEFT_OVER = {"old-3": {"escher.dev/lab.half": "2"}}
"""The same, in capacity alone: their writer was stopped before it wrote allocatable."""
OF_OTHERS: dict[str, dict[str, str]] = {
    "old-3": {"example.com/dongle": "4"},
    # An application's own ephemeral resources (`escher_k8s.esl`), and a domain that only looks like the service's.
    "old-4": {"app.escher.dev/lab.ring-1": "2", "escher.dev.example.com/lab.data": "5"},
    "old-5": {"nvidia.com/gpu": "8"},
}

POD_GROUPS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        # The API server requires this of every kind in a group of k8s.io.
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def node_name(number: int) -> str:
    return f"old-{number % NODES}"


def settle() -> Iterator[Ask]:
    """Creates everything that exists before Escher comes."""
    yield create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", POD_GROUPS)
    for name in (LAB, SHOP, TRIALS):
        yield create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"example.com/team": name}}})
    for number in range(NODES):
        yield create("/api/v1/nodes", _node(number))
    budget = {"minAvailable": WEB - 1, "selector": {"matchLabels": {"app": "web"}}}
    yield create(BUDGETS, {"metadata": {"name": "web"}, "spec": budget})
    for name, members in (("mpi", 4), ("ring", 3)):
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        yield create(GROUPS, {**group, "spec": {"minMember": members}})
    in_lab = list(_in_lab())
    for each in in_lab:
        yield create(core(LAB, "pods"), each)
    for number in range(WEB):
        yield create(core(SHOP, "pods"), web(number))
    # The quota is exactly used up. Its controller does not run on every cluster, so the script writes the count.
    hard = {"hard": {"pods": str(len(in_lab))}}
    yield create(core(LAB, "resourcequotas"), {"metadata": {"name": "pods"}, "spec": hard}, needs_real=True)
    counted = {"status": {**hard, "used": hard["hard"]}}
    yield merge(core(LAB, "resourcequotas", "pods", "status"), counted, needs_real=True)


def _node(number: int) -> Json:
    name = node_name(number)
    offered = {"cpu": str(CPU_OF_NODE), "memory": "64Gi", "pods": "110"}
    offered |= LEFT_OVER.get(name, {}) | OF_OTHERS.get(name, {})
    labels = {"example.com/pool": f"pool-{number % 3}", "escher.dev/rack": f"rack-{number // 5}"}
    made = node(name, offered, labels=labels)
    made["metadata"].setdefault("annotations", {})["escher.dev/note"] = "written by people"
    # A copy, because capacity and allocatable are otherwise one object.
    made["status"]["capacity"] = {**made["status"]["capacity"], **HALF_LEFT_OVER.get(name, {})}
    if number == NODES - 1:
        made.setdefault("spec", {})["taints"] = [{"key": "example.com/reserved", "effect": "NoSchedule"}]
    return made


def web(number: int) -> Json:
    return _running(pod(f"web-{number}", DEFAULT, labels={"app": "web"}), number)


def _running(made: Json, number: int) -> Json:
    """The pod, bound to its node already; kubelets do the rest."""
    made["spec"]["nodeName"] = node_name(number)
    return made


def batch(number: int) -> Json:
    return _running(pod(f"batch-{number}", BATCH, labels={"app": "batch"}), number)


def _in_lab() -> Iterator[Json]:
    yield from map(batch, range(BATCHES))
    # The fifth of five has left since.
    for number in range(VETERAN_COUNT):
        holds: dict[str, Any] = {"escher.dev/lab.old-data": 1} if number < 2 else {}
        yield _running(pod(f"{VETERANS}-{number}", EXTENDER, gang=VETERANS, quorum=5, **holds), number)
    # Two members of a gang of four run; of the other gang, of three, none runs.
    for number in range(4):
        made = pod(f"mpi-{number}", COSCHEDULING, labels={POD_GROUP: "mpi"})
        yield _running(made, 6 + number) if number < 2 else made
    for number in range(3):
        yield pod(f"ring-{number}", COSCHEDULING, labels={POD_GROUP: "ring"})
    # With labels that would make it the service's gang, if that did not depend on its scheduler.
    for number in range(3):
        made = pod(f"look-{number}", COSCHEDULING, gang="look", quorum=3)
        yield _running(made, 8) if number < 1 else made
    gated = pod("gated-0", COSCHEDULING)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    yield gated
