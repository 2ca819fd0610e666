"""Nodes that exist only in the API server: their objects, and the creation of thousands in seconds.

A node is created with its status, Ready and with its capacity, so that kube-scheduler can use it at once; kwok then
renews its lease.
"""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from extender.shipped.errors import ClusterError, WrongUse
from lab.controlplane.api import Access
from lab.controlplane.trace import TraceNode

GPU = "nvidia.com/gpu"
GPU_MODEL_LABEL = "escher.dev/gpu-model"
MOST_NODES = 20_000

_CONNECTIONS = 8
_CONDITIONS = (
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class NodeShape(msgspec.Struct, frozen=True):
    """The capacity of a plain node, as Kubernetes quantities; `extra` are other resources."""

    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    extra: dict[str, str] = msgspec.field(default_factory=dict)


def plain(count: int, shape: NodeShape, *, start: int = 0) -> list[dict[str, Any]]:
    """Nodes `node-0`, `node-1` ... of the same shape, spread over zones of 100 and racks of 20."""
    if not 0 <= count <= MOST_NODES:
        raise WrongUse(f"between 0 and {MOST_NODES} nodes can be made, not {count}")
    offered = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), **shape.extra}
    return [
        node(
            f"node-{number}",
            offered,
            labels={"topology.kubernetes.io/zone": f"zone-{number // 100}", "escher.dev/rack": f"rack-{number // 20}"},
        )
        for number in range(start, start + count)
    ]


def from_trace(nodes: Iterable[TraceNode], *, pods: int = 110) -> list[dict[str, Any]]:
    """Nodes as the trace's machines; GPUs are `nvidia.com/gpu`, their model is a label."""
    made = []
    for each in nodes:
        offered = {"cpu": f"{each.cpu_milli}m", "memory": f"{each.memory_mib}Mi", "pods": str(pods)}
        if each.gpus:
            offered[GPU] = str(each.gpus)
        made.append(node(each.name, offered, labels={GPU_MODEL_LABEL: each.model} if each.model else {}))
    return made


def node(name: str, offered: dict[str, str], *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A Node object, Ready, whose capacity and allocatable are both `offered`."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                # Otherwise the node lifecycle controller adds these labels with one write for each node.
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "type": "kwok",
                **(labels or {}),
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {
            "phase": "Running",
            "capacity": offered,
            "allocatable": offered,
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": message}
                for kind, status, reason, message in _CONDITIONS
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "kwok",
                **dict.fromkeys(("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"), "kwok"),
                **dict.fromkeys(("machineID", "osImage", "systemUUID"), "kwok"),
            },
        },
    }


def create(access: Access, nodes: Sequence[dict[str, Any]]) -> None:
    """Creates all nodes. Raises ClusterError with the first refusal; some nodes may exist then."""
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for each in nodes:
        waiting.put(each)
    failures: list[str] = []
    workers = [
        threading.Thread(target=_create_all, args=(access, waiting, failures), daemon=True)
        for _ in range(min(_CONNECTIONS, len(nodes)))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise ClusterError(f"could not create all nodes: {failures[0]}")


def _create_all(access: Access, waiting: queue.SimpleQueue[dict[str, Any]], failures: list[str]) -> None:
    # http.client and not httpx: a request takes a third of the time, and 5,000 requests are most of a start.
    parts = urlsplit(access.url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "127.0.0.1", parts.port, context=access.trust, timeout=30
    )
    headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
    try:
        while not failures:
            try:
                each = waiting.get_nowait()
            except queue.Empty:
                return
            connection.request("POST", "/api/v1/nodes", body=json.dumps(each), headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            # 201: created. 409: the node exists already, from an earlier start of the same cluster.
            if answer.status not in (201, 409):
                failures.append(f"{each['metadata']['name']}: {content.decode(errors='replace')[:500]}")
    except (OSError, http.client.HTTPException) as error:
        failures.append(str(error) or type(error).__name__)
    finally:
        connection.close()
