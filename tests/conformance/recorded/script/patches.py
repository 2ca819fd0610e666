"""Patches of pods: merge, strategic and JSON patches, of the pod and of its status."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, json_patch, merge, strategic
from tests.conformance.recorded.script.objects import ONE_AS_METADATA, OTHER_UID, PODS

A, B = f"{PODS}/a", f"{PODS}/b"
ON_A_NODE = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ON_A_NODE]}}}

BOUND: list[Ask] = [
    merge(A, {"spec": {"nodeName": "n2"}}, id="moved"),
    merge(A, {"spec": {"terminationGracePeriodSeconds": 3}}, id="other-grace"),
    merge(A, {"spec": {"activeDeadlineSeconds": 30}}),
    merge(A, {"spec": {"activeDeadlineSeconds": 40}}, id="later-deadline"),
    strategic(A, {"spec": {"containers": [{"name": "c", "image": "other"}]}}),
    strategic(A, {"spec": {"containers": [{"name": "d", "image": "other"}]}}, id="one-container-more"),
    strategic(A, {"spec": {"tolerations": [{"key": "q", "operator": "Exists"}]}}, id="other-tolerations"),
    json_patch(A, [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "q", "operator": "Exists"}}]),
    merge(A, {"metadata": {"uid": OTHER_UID, "annotations": {"b": "c"}}}, id="other-uid"),
    merge(A, {"metadata": {"resourceVersion": "3", "annotations": {"b": "c"}}}),
    merge(A, {"metadata": {"annotations": {"b": "c"}}}),
    merge(A, {"metadata": {"annotations": {"b": None}}}, accept=f"{ONE_AS_METADATA},application/json"),
    merge(A, {"metadata": {"labels": {"b b": "c"}}}, id="bad-label"),
]

STATUS: list[Ask] = [
    merge(A, {"status": {"phase": "Running"}}),
    strategic(f"{A}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    merge(
        f"{A}/status",
        {
            "metadata": {"labels": {"viastatus": "1"}},
            "spec": {"nodeName": "q"},
            "status": {"phase": "Running", "qosClass": None},
        },
    ),
    strategic(
        f"{A}/status",
        {
            "status": {
                "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
                "conditions": [{"type": "PodScheduled", "$patch": "delete"}, {"type": "Foo", "status": "True"}],
            }
        },
    ),
]

BAD: list[Ask] = [
    json_patch(A, [{"op": "test", "path": "/metadata/name", "value": "q"}]),
    json_patch(A, [{"op": "remove", "path": "/metadata/labels/zzz"}]),
    json_patch(A, {"x": 1}, id="no-list-of-operations"),
    merge(A, [], id="a-list-to-merge"),
    merge(A, b"{", id="half-a-merge-patch"),
    json_patch(A, b"{", id="half-a-json-patch"),
    Ask(method="PATCH", path=A, body={}, id="no-kind-of-patch"),
    merge(f"{PODS}/none", {}),
]

GATED: list[Ask] = [
    strategic(B, {"spec": {"schedulingGates": [{"$patch": "delete", "name": "x.io/g"}]}}),
    strategic(B, {"spec": {"schedulingGates": [{"name": "new"}]}}, id="one-gate-more"),
    merge(B, {"spec": {"nodeSelector": {"a": "b"}}}),
    merge(B, {"spec": {"nodeSelector": {"a": "c"}}}, id="wider-selector"),
    merge(B, {"spec": {"affinity": AFFINITY}}),
    merge(B, {"spec": {"schedulingGates": None}}),
    merge(B, {"spec": {"nodeSelector": {"c": "c"}}}, id="selector-without-gates"),
]

ASKS = [*BOUND, *STATUS, *BAD, *GATED]
