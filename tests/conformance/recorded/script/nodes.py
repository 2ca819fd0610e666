"""Nodes: made, patched, cordoned, deleted."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, delete, get, json_patch, merge, post, put, strategic
from tests.conformance.recorded.script.objects import NAMESPACES, NODES, ONE_AS_METADATA, namespace

N = f"{NODES}/n"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"a": "b"}},
    "status": {
        "capacity": {"cpu": "8", "memory": "1024Ki", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    },
}
BAD_TAINTS = [{"key": "a", "effect": "Foo"}, {"key": "b b", "effect": "NoSchedule"}, {"key": "c"}]
NO_EXECUTE = {"key": "b", "effect": "NoExecute"}
XY = "escher.dev/x.y"
OTHER_STATUS = {
    "conditions": [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}],
    "addresses": [{"type": "Hostname", "address": "h"}],
}

MADE: list[Ask] = [
    post(NODES, NODE),
    post(NODES, NODE),
    post(NODES, {"metadata": {"name": "Bad_"}}),
    post(NODES, {"metadata": {"name": "c"}, "spec": {"taints": BAD_TAINTS}}, id="bad-taints"),
    post(NODES, {"metadata": {"name": "d"}, "status": {"capacity": {"escher.dev/x": "1500m"}}}),
    post(NODES, {"metadata": {"name": "d"}, "status": {"capacity": {"cpu": "-1"}}}),
    post(NODES, {"metadata": {"name": "d", "namespace": "default"}}),
    post(NODES, {"metadata": {"name": "d"}, "status": {"capacity": {"escher.dev/x": "abc"}}}, id="no-quantity"),
    put(f"{NODES}/nope", {"metadata": {"name": "nope"}}),
    put(f"{NODES}/nope", {"metadata": {"name": "other"}}),
    post(f"{N}/status", {}),
    get(f"{N}/status"),
    post(NAMESPACES, namespace("a.b")),
]

STATUS: list[Ask] = [
    merge(f"{N}/status", {"status": {"capacity": {XY: "2000"}, "allocatable": {XY: "2000"}}}),
    merge(f"{N}/status", {"status": {"capacity": {XY: "1.5"}}}),
    merge(
        f"{N}/status",
        {"status": {"capacity": {XY: None}, "allocatable": {XY: None, "nope": None}}},
        accept=f"{ONE_AS_METADATA},application/json",
    ),
    json_patch(f"{N}/status", [{"op": "add", "path": "/status/capacity/example.com~1foo", "value": "4"}]),
    strategic(f"{N}/status", {"status": OTHER_STATUS}),
    merge(f"{N}/status", {"metadata": {"labels": {"via": "status"}}, "spec": {"unschedulable": True}}),
    merge(N, {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "99"}}}),
]

PATCHED: list[Ask] = [
    strategic(N, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    strategic(N, {"spec": {"taints": [NO_EXECUTE]}}),
    strategic(N, {"spec": {"taints": [NO_EXECUTE, NO_EXECUTE]}}, id="taint-twice"),
    strategic(N, {"metadata": {"finalizers": ["x.y/z"]}}),
    strategic(N, {"metadata": {"finalizers": ["x.y/w"]}}),
    strategic(N, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.y/z"]}}),
    strategic(N, {"metadata": {"labels": None, "$retainKeys": ["name"]}}, id="retain-keys"),
    strategic(N, {"metadata": {"labels": {"$patch": "replace", "q": "r"}}}),
    strategic(N, {"metadata": {"labels": {"$patch": "delete"}}}),
    strategic(N, {"metadata": {"labels": {"$patch": "foo"}}}, id="unknown-directive"),
    get(f"{NODES}?fieldSelector=spec.unschedulable=true,metadata.name=n"),
]

DELETED: list[Ask] = [
    delete(N),
    get(N),
    merge(N, {"metadata": {"finalizers": None}}),
    get(N),
]

ASKS = [*MADE, *STATUS, *PATCHED, *DELETED]
