"""Priority classes, disruption budgets and evictions."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, delete, get, merge, post, strategic
from tests.conformance.recorded.script.objects import NAMESPACES, Json, binding, namespace, pod, pod_with

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/evicted/poddisruptionbudgets"
PODS = f"{NAMESPACES}/evicted/pods"
V = f"{PODS}/v"


def eviction(name: str = "v", **options: object) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "evicted"},
        "deleteOptions": options,
    }


PRIORITIES: list[Ask] = [
    post(NAMESPACES, namespace("evicted")),
    post(CLASSES, {"metadata": {"name": "five"}, "value": 5}),
    post(CLASSES, {"metadata": {"name": "system-x"}, "value": 5}),
    post(CLASSES, {"metadata": {"name": "high"}, "value": 2000000000}),
    merge(f"{CLASSES}/five", {"value": 6}),
    merge(f"{CLASSES}/five", {"preemptionPolicy": "Never"}),
    get(f"{CLASSES}/system-node-critical"),
    delete(f"{CLASSES}/five"),
    post(CLASSES, {"metadata": {"name": "never"}, "value": 5, "preemptionPolicy": "Never"}, pause=1.5),
    post(PODS, pod("pp", priorityClassName="never")),
    post(PODS, pod("pq", preemptionPolicy="PreemptLowerPriority", priorityClassName="never")),
    delete(f"{CLASSES}/never"),
]

EVICTIONS: list[Ask] = [
    post(BUDGETS, {"metadata": {"name": "d"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
    post(BUDGETS, {"metadata": {"name": "d2"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}, id="budget-of-both"),
    post(PODS, pod_with({"name": "v", "labels": {"a": "b"}})),
    post(f"{V}/binding", binding("v")),
    strategic(f"{V}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    post(f"{V}/eviction", eviction(), id="budget-not-seen-yet"),
    merge(
        f"{BUDGETS}/d/status",
        {"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1}},
        id="budget-without-room",
    ),
    post(f"{V}/eviction", eviction(), id="no-room"),
    merge(f"{BUDGETS}/d/status", {"status": {"disruptionsAllowed": 1}}),
    post(f"{V}/eviction", eviction(preconditions={"uid": "x"})),
    post(f"{V}/eviction", eviction()),
    get(f"{BUDGETS}/d"),
    get(V),
    post(f"{PODS}/none/eviction", eviction("none")),
    post(f"{PODS}/pp/eviction", eviction("pp")),
    get(f"{PODS}/pp"),
]

ASKS = [*PRIORITIES, *EVICTIONS]
