"""Pods with more in their spec, on a node that is there: what is filled in, patched and told of them."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, delete, get, merge, post, put, strategic
from tests.conformance.recorded.script.objects import NAMESPACES, NODES, Json, binding, namespace, pod, pod_with

PODS = f"{NAMESPACES}/placed/pods"
A, N, V, GP = (f"{PODS}/{name}" for name in ("a", "n", "v", "gp"))
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}},
}
APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
VOLUMES = [
    {"name": "e", "emptyDir": {}},
    {"name": "d"},
    {"name": "cm", "configMap": {"name": "x"}},
    {"name": "hp", "hostPath": {"path": "/x"}},
    {"name": "s", "secret": {"secretName": "q"}},
]
PROBED = {
    "name": "c",
    "image": "i",
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "securityContext": {"privileged": False},
}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
ENDED = {
    "name": "c",
    "image": "i",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "state": {"terminated": {"exitCode": 0}},
}


def labelled(name: str, **spec: object) -> Json:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    container = {"name": "c", "image": "i", "env": env, "ports": [{"containerPort": 80}]}
    return pod_with({"name": name, "labels": {"a": "b"}}, container, **spec)


def owner(name: str, uid: str) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


MADE: list[Ask] = [
    post(NAMESPACES, namespace("placed")),
    post(
        NODES,
        {
            "metadata": {
                "name": "placed",
                "labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"},
            }
        },
        pause=1.5,
    ),
    post(PODS, labelled("ov", overhead={"cpu": "1"}), id="overhead"),
    post(PODS, labelled("a")),
    post(f"{A}/binding", binding("a", "placed")),
    get(A),
    post(PODS, labelled("n", nodeName="placed")),
    post(PODS, labelled("n2", nodeName="Bad_")),
    post(PODS, labelled("v", volumes=VOLUMES), id="volumes"),
    post(
        PODS,
        labelled(
            "af",
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}},
            topologySpreadConstraints=[SPREAD],
        ),
        id="affinity",
    ),
    post(
        PODS,
        labelled("probe", hostNetwork=True, initContainers=[{"name": "i", "image": "j", "livenessProbe": None}]),
        id="host-network",
    ),
    post(
        PODS,
        pod("gp", PROBED, serviceAccountName="sa", terminationGracePeriodSeconds=0, tolerations=[NOT_READY]),
        id="probed",
    ),
    post(f"{PODS}?dryRun=All", labelled("a"), id="dry-run-of-what-is-there"),
]

PATCHED: list[Ask] = [
    strategic(GP, {"spec": {"containers": [{"name": "c", "env": [{"name": "N", "$patch": "delete"}]}]}}, id="less-env"),
    strategic(
        GP, {"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c", "image": "new"}]}}
    ),
    strategic(GP, {"metadata": {"annotations": {"a": "1"}, "ownerReferences": [owner("a", "u1")]}}),
    strategic(GP, {"metadata": {"ownerReferences": [owner("b", "u2")]}}),
    strategic(GP, {"metadata": {"ownerReferences": [{"uid": "u1", "$patch": "delete"}]}}),
    merge(f"{GP}/status", {"status": {"phase": "Succeeded", "containerStatuses": [ENDED]}}, id="ended"),
    merge(f"{GP}/status", {"status": {"nominatedNodeName": "x"}}, id="nominated"),
    put(f"{N}/status", {"metadata": {"name": "n"}, "status": {"phase": "Running"}}),
    get(f"{N}/status"),
    strategic(f"{V}?fieldValidation=Strict", {"spec": {"foo": 1}}, id="strict-strategic-patch"),
    merge(f"{V}?fieldValidation=Strict", {"spec": {"foo": 1}}, id="strict-merge-patch"),
    merge(V, {"spec": {"foo": 1}}, id="unknown-field"),
]

DELETED: list[Ask] = [
    delete(GP),
    get(GP),
    delete(f"{N}?gracePeriodSeconds=0"),
    delete(f"{A}?propagationPolicy=Foreground"),
    delete(f"{A}?gracePeriodSeconds=-5"),
    delete(f"{A}?dryRun=All&gracePeriodSeconds=0"),
    delete(f"{NODES}/placed"),
]

ASKS = [*MADE, *PATCHED, *DELETED]
