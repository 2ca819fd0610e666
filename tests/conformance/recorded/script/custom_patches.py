"""Escher's custom resource: patches, status, reads, deletions; and the end of its definition."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, delete, get, json_patch, merge, post, put, strategic
from tests.conformance.recorded.script.custom_resources import DEFINITION, RESOURCES, resource
from tests.conformance.recorded.script.objects import MOMENT, ONE_AS_METADATA, OTHER_UID

A, F = f"{RESOURCES}/a", f"{RESOURCES}/f"
READY = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": MOMENT}

PATCHED: list[Ask] = [
    merge(A, {"spec": {"nodes": {"n": None, "m": 2}}}),
    merge(A, {"spec": {"nodes": {"m": 2}}}),
    merge(A, {"metadata": {"labels": {"a": "b"}}}),
    merge(A, {"status": {"observedGeneration": 9}}),
    merge(A, {"spec": {"capacity": 2, "nodeSpec": {}}}, id="both-ways"),
    merge(A, {"spec": {"capacity": None, "nodeSpec": None}}),
    merge(A, {"spec": {"capacity": -2}}, id="less-than-none"),
    merge(A, {"spec": {"foo": {"x": 1}}}),
    merge(f"{A}?fieldValidation=Strict", {"spec": {"foo": {"x": 1}}}, id="strict"),
    strategic(A, {"spec": {"nodes": {"m": 2}}}),
    merge(A, {"metadata": {"uid": OTHER_UID}}, id="other-uid"),
    merge(A, {"metadata": {"resourceVersion": "1"}}),
    merge(A, {"metadata": {"name": "q"}}),
    merge(A, {"kind": "Foo"}),
]

STATUS: list[Ask] = [
    json_patch(
        f"{A}/status",
        [{"op": "test", "path": "/metadata/uid", "value": "x"}, {"op": "add", "path": "/status", "value": {}}],
    ),
    json_patch(
        f"{A}/status",
        [
            {
                "op": "add",
                "path": "/status",
                "value": {"observedGeneration": 1, "nodes": {"a": 1}, "conditions": [READY]},
            }
        ],
        id="status",
    ),
    merge(
        f"{A}/status", {"status": {"nodes": {"b": 2}}, "spec": {"nodes": {"q": 1}}, "metadata": {"labels": {"z": "z"}}}
    ),
    merge(f"{A}/status", {"status": {"conditions": [READY, READY]}}, id="condition-twice"),
    # One by one: in which order the real one tells of several is drawn anew each time.
    merge(f"{A}/status", {"status": {"conditions": [{**READY, "status": "Maybe"}]}}, id="no-status"),
    merge(f"{A}/status", {"status": {"conditions": [{**READY, "reason": "", "foo": 1}]}}, id="no-reason"),
    merge(f"{A}/status", {"status": {"conditions": [{**READY, "lastTransitionTime": "x"}]}}, id="no-time"),
    merge(f"{A}/status", {"status": {"conditions": [{"type": "x"}]}}, id="short-condition"),
    merge(
        f"{A}/status",
        {"status": {"conditions": [{**READY, "type": f"T{each}"} for each in range(9)]}},
        id="too-many-conditions",
    ),
    put(f"{A}/status", {"status": {"observedGeneration": 1}}, base="status"),
    put(f"{A}/status", {"metadata": {"resourceVersion": ""}, "status": {"observedGeneration": 1}}, base="status"),
    get(f"{A}/status"),
]

READ: list[Ask] = [
    get(f"{A}/scale"),
    get(f"{A}/foo"),
    post(A, resource("a", {}), id="made-at-a-name"),
    delete(f"{A}/status"),
    get("/apis/escher.dev/v1alpha1/foos"),
    get("/apis/escher.dev/v1/ephemeralresources"),
    get("/apis/nope.dev/v1/foos"),
    get(f"{RESOURCES}?fieldSelector=metadata.name=a"),
    get(f"{RESOURCES}?fieldSelector=spec.nodes=a"),
    get("/apis/escher.dev/v1alpha1/ephemeralresources?fieldSelector=metadata.namespace=custom&limit=1", id="paged"),
    get(A, accept=ONE_AS_METADATA),
]

DELETED: list[Ask] = [
    delete(A, {"preconditions": {"uid": "{custom-resources/made:metadata.uid}", "resourceVersion": "1"}}),
    delete(f"{A}?dryRun=All"),
    delete(A, {"propagationPolicy": "Foreground"}),
    merge(A, {"metadata": {"finalizers": None}}),
    get(A),
    delete(f"{RESOURCES}/none"),
    post(RESOURCES, resource("f", {"nodes": {}})),
    merge(F, {"metadata": {"finalizers": ["a.b/c"]}}),
    delete(F),
    merge(F, {"spec": {"nodes": {"z": 1}}}),
    json_patch(F, [{"op": "remove", "path": "/metadata/finalizers"}]),
    get(F),
    delete(RESOURCES),
    get(RESOURCES),
]

ENDED: list[Ask] = [
    delete(DEFINITION, pause=3.0, id="definition"),
    get(RESOURCES),
    get(DEFINITION),
]

ASKS = [*PATCHED, *STATUS, *READ, *DELETED, *ENDED]
