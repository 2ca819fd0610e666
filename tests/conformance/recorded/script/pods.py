"""Pods that are made, or refused."""

from __future__ import annotations

from tests.conformance.recorded.asks import YAML, Ask, get, post
from tests.conformance.recorded.script.objects import NAMESPACES, PODS, Json, container, namespace, pod, pod_with

DIGEST = "x/y@sha256:0123456789012345678901234567890123456789012345678901234567890123"
YAML_POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: yam}\nspec: {containers: [{name: a, image: b}]}\n"


def asks_for(requests: Json, **limits: str) -> Json:
    """A container with such resources."""
    return container(resources={"requests": requests, **({"limits": limits} if limits else {})})


PLAIN: list[Ask] = [
    post(NAMESPACES, namespace("asked")),
    post(f"{NAMESPACES}/none/pods", pod("a")),
    post(PODS, pod("a")),
    post(PODS, pod("a")),
    post(PODS, pod("A_b")),
    post(PODS, pod("-b.")),
    post(PODS, {"metadata": {"name": "x"}}, id="no-spec"),
    post(PODS, pod_with({}), id="no-name"),
    post(PODS, pod_with({"generateName": "bad_"}), id="bad-generated-name"),
    post(PODS, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}),
    post(PODS, {"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "b"}}),
]

SPECS: list[Ask] = [
    post(PODS, pod("b", schedulingGates=[{"name": "x.io/g"}, {"name": "x.io/h"}])),
    post(PODS, pod("g2", schedulingGates=[{"name": "bad gate"}, {"name": "x.io/h"}, {"name": "x.io/h"}])),
    post(PODS, pod("g3", schedulingGates=[{"name": "x.io/h"}], nodeName="n")),
    post(PODS, pod("r1", asks_for({"escher.dev/x": "1"}))),
    post(PODS, pod("r2", asks_for({"escher.dev/x": "1"}, **{"escher.dev/x": "2"}))),
    post(PODS, pod("r3", asks_for({"escher.dev/x": "1500m"}, **{"escher.dev/x": "1500m"}))),
    post(PODS, pod("r4", asks_for({"cpu": "2"}, cpu="1"))),
    post(PODS, pod("r5", asks_for({"foo": "2"}))),
    post(PODS, pod("r6", asks_for({"cpu": "-2"}))),
    post(PODS, pod("r7", asks_for({"cpu": "abc"})), id="no-quantity"),
    post(
        PODS,
        pod(
            "r8",
            asks_for({"cpu": 1, "memory": "1024Mi"}, **{"cpu": "1000m", "memory": "1Gi", "escher.dev/a.b": "1000"}),
            {"name": "d", "image": DIGEST},
        ),
    ),
    post(
        PODS,
        pod(
            "r9",
            container(resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
            {"name": "c", "image": ""},
            {"name": "UP", "image": "x"},
        ),
        id="containers-alike",
    ),
    post(PODS, pod("p1", priorityClassName="nope")),
    post(PODS, pod("p2", priorityClassName="system-node-critical")),
    post(PODS, pod("p3", priority=5)),
    post(
        PODS,
        pod(
            "t1",
            tolerations=[
                {"key": "a", "operator": "Exists", "value": "x"},
                {"effect": "Foo"},
                {"key": "b", "tolerationSeconds": 3},
            ],
        ),
        id="bad-tolerations",
    ),
    post(PODS, pod("t2", tolerations=[{"operator": "Exists"}])),
    post(PODS, pod("rp", restartPolicy="Sometimes")),
    post(PODS, pod("neg", terminationGracePeriodSeconds=-1)),
    post(PODS, pod("ad", activeDeadlineSeconds=0)),
    post(PODS, pod("sel", nodeSelector={"a b": "c"})),
]

METADATA: list[Ask] = [
    post(PODS, pod_with({"name": "l1", "labels": {"a b": "c"}, "annotations": {"q q": "r"}}), id="bad-keys"),
    post(PODS, pod_with({"name": "l1", "labels": {"x": "y z"}}), id="bad-label"),
    post(PODS, pod_with({"name": "l1", "labels": {"a": 1}}), id="label-of-wrong-type"),
    post(PODS, pod_with({"name": "l2", "resourceVersion": "5"})),
    post(PODS, pod_with({"name": "l2", "namespace": "other"})),
    post(
        PODS,
        pod_with(
            {
                "name": "l3",
                "finalizers": ["a.b/c", "bad"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}],
            }
        ),
        id="bad-finalizer",
    ),
]

BODIES: list[Ask] = [
    post(f"{PODS}?dryRun=All", pod("dry")),
    get(f"{PODS}/dry"),
    post(f"{PODS}?dryRun=Some", pod("dry")),
    post(f"{PODS}?fieldValidation=Strict", {**pod("st"), "foo": 1}, id="strict-top"),
    post(f"{PODS}?fieldValidation=Strict", pod("st", foo=1), id="strict-spec"),
    post(
        f"{PODS}?fieldManager=x&fieldValidation=Strict",
        pod_with({"name": "s", "foo": 1}, container(foo=1), bar=2),
        id="strict-everywhere",
    ),
    post(PODS, b"{", id="half-a-body"),
    post(PODS, b"[]", id="a-list"),
    post(PODS, b"", id="no-body"),
    post(PODS, b"a: b", content_type="text/plain"),
    post(PODS, YAML_POD, content_type=YAML),
]

ASKS = [*PLAIN, *SPECS, *METADATA, *BODIES]
