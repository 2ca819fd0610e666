"""Pods and nodes as in a cluster in use, with all the fields that no component reads.

Pods are of Deployments: pods of one Deployment differ only by name, UID, node, times and addresses. A tenth are members
of gangs. A pod is about 3.5 KB of JSON, a node about 5 KB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

Json = dict[str, Any]

IN_ONE = 50
"""Pods of one Deployment."""
GANG_OF = 8
NAMESPACES = tuple(f"team-{number}" for number in range(40))
_CPU = ("100m", "250m", "500m", "1")
_MEMORY = ("128Mi", "256Mi", "512Mi", "1Gi", "2Gi")
_TIME = "2026-11-20T08:{:02}:{:02}Z"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def node_name(number: int) -> str:
    return f"node-{number:05}"


def nodes(count: int) -> Iterator[Json]:
    for number in range(count):
        offered = {"cpu": "16", "memory": "65830420Ki", "ephemeral-storage": "101430960Ki", "pods": "110"}
        name = node_name(number)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"0a1b2c3d-0000-4000-8000-{number:012}",
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": "m6i.4xlarge",
                    "topology.kubernetes.io/region": "region-1",
                    "topology.kubernetes.io/zone": f"zone-{number % 3}",
                },
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
                "managedFields": _managed(8),
            },
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
            "status": {
                "capacity": offered,
                "allocatable": offered,
                "conditions": [
                    _condition(kind, "True" if kind == "Ready" else "False")
                    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
                ],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
                "images": [
                    {"names": [f"registry.example.com/team/image-{each}@sha256:{'0' * 64}"], "sizeBytes": 123456789}
                    for each in range(12)
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "kernelVersion": "6.8.0"},
            },
        }


def bound_pods(count: int, of_nodes: int, seed: int = 1) -> Iterator[Json]:
    """Yields running pods, evenly over the nodes."""
    rng = random.Random(seed)
    for number in range(count):
        template, copy = divmod(number, IN_ONE)
        in_gang = f"train-{number // GANG_OF}" if template % 10 == 0 else None
        yield pod(template, copy, rng.randrange(16**8), node=node_name(number % of_nodes), gang=in_gang)


def pod(template: int, copy: int, drawn: int, *, node: str | None, gang: str | None = None) -> Json:
    """Returns a pod of Deployment number `template`. Without a node it has just been created."""
    app, short = f"app-{template}", f"{drawn:08x}"
    owner, name = f"{app}-6d4cf56db6", f"{app}-6d4cf56db6-{copy:02}{short[:3]}"
    asks = {"cpu": _CPU[template % len(_CPU)], "memory": _MEMORY[template % len(_MEMORY)]}
    labels = {"app": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4cf56db6"}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    if gang is not None:
        labels["escher.dev/gang"] = gang
        annotations["escher.dev/gang-min-member"] = str(GANG_OF)
    token = f"kube-api-access-{short[:5]}"
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{owner}-",
            "namespace": NAMESPACES[template % len(NAMESPACES)],
            "uid": f"{short}-{template:04x}-4000-8000-{copy:012}",
            "creationTimestamp": _TIME.format(copy, drawn % 60),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": f"00000000-{template:04x}-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managed(3),
        },
        "spec": {
            "volumes": [
                {
                    "name": token,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example.com/team/{app}:1.2.3",
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": f"SETTING_{each}", "value": "a value of some length"} for each in range(4)],
                    "resources": {"requests": asks, "limits": asks},
                    "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "escher",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{why}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for why in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }
    if node is not None:
        made["spec"]["nodeName"] = node
        made["status"] = running(made)
    return made


def life(template: int, copy: int, drawn: int, node: str) -> list[Json]:
    """Returns a pod's states until it is gone: created, bound, running, being deleted."""
    made = pod(template, copy, drawn, node=None)
    bound = {**made, "spec": {**made["spec"], "nodeName": node}}
    runs = {**bound, "status": running(bound)}
    return [made, bound, runs, {**runs, "metadata": {**runs["metadata"], "deletionTimestamp": _TIME.format(30, 0)}}]


def running(made: Json) -> Json:
    """Returns the status of the pod with running containers."""
    started = made["metadata"]["creationTimestamp"]
    [container] = made["spec"]["containers"]
    return {
        "phase": "Running",
        "conditions": [_condition(kind, "True") for kind in _CONDITIONS],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": started,
        "containerStatuses": [
            {
                "name": container["name"],
                "state": {"running": {"startedAt": started}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": container["image"],
                "imageID": f"registry.example.com/team/image@sha256:{'0' * 64}",
                "containerID": f"containerd://{'0' * 64}",
                "started": True,
                "allocatedResources": container["resources"]["requests"],
                "resources": container["resources"],
            }
        ],
        "qosClass": "Guaranteed",
    }


def _condition(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": _TIME.format(1, 2)}


def _managed(entries: int) -> list[Json]:
    fields = {f"f:field-{each}": {".": {}, "f:name": {}, "f:value": {}} for each in range(5)}
    return [
        {
            "manager": f"manager-{each}",
            "operation": "Update",
            "apiVersion": "v1",
            "time": _TIME.format(3, 4),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": fields},
        }
        for each in range(entries)
    ]


encoded = msgspec.json.Encoder().encode
