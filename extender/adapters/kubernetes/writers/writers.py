"""Writers: Escher's changes of pods and nodes, one request each. See `app.contracts.ports`.

Every write about a pod has its UID: another pod of the same name stays unchanged (409, which is Gone here). The encoder
builds bodies as JSON: no name can break out of its place. There are no retries here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from extender.adapters.translation.objects import WAKE
from extender.app.contracts.ports import Notice, PodRef
from extender.core.attempt import ATTEMPT
from extender.core.gang_ask import GANG_GATE
from extender.kube.client.requests import MERGE_PATCH, METADATA_ONLY, STRATEGIC_MERGE_PATCH, Requests, address
from extender.kube.errors import Gone, Occupied, Unavailable, asking_for_no_version
from extender.kube.names import NodeName, ResourceKey
from extender.kube.nesting import Decoder
from extender.kube.printable import printable

COMPONENT = "escher"

_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
_LONGEST_NOTE = 1024
_PREEMPTED = "PreemptionByEscher"
"""Not kube-scheduler's PreemptionByScheduler, which means that kube-scheduler deleted the pod."""
_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_LONGEST_NAME = 253

_encode = msgspec.json.Encoder().encode


class _Identity(msgspec.Struct):
    uid: str


class _Placement(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _PlacedPod(msgspec.Struct):
    metadata: _Identity
    spec: _Placement


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")


class _Versioned(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


class _Managed(msgspec.Struct):
    manager: str = ""
    fields: dict[str, Any] | None = msgspec.field(name="fieldsV1", default=None)


class _Managers(msgspec.Struct):
    managed: list[_Managed] | None = msgspec.field(name="managedFields", default=None)


class _ManagedNode(msgspec.Struct):
    metadata: _Managers


class _ManagedNodes(msgspec.Struct):
    items: list[_ManagedNode] | None


_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_managed_nodes = Decoder(_ManagedNodes)
_versioned = Decoder(_Versioned)
_placed_pods = Decoder(_PlacedPod)


def _pod_path(pod: PodRef, *more: str) -> str:
    return address("api", "v1", "namespaces", pod.namespace, "pods", pod.name, *more)


class ApiBinder:
    """`ports.Binder`, by a Binding."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def bind(self, pod: PodRef, node: NodeName, annotations: Mapping[str, str] = _NO_ANNOTATIONS) -> None:
        """Writes the Binding. Occupied: bound already, or being deleted; `node_of` shows which."""
        metadata: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if annotations:
            # The API server copies them to the pod, in the same write.
            metadata["annotations"] = dict(annotations)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._requests.request("POST", _pod_path(pod, "binding"), _encode(binding))

    async def node_of(self, pod: PodRef) -> NodeName | None:
        body = await self._requests.request("GET", _pod_path(pod))
        try:
            found = _placed_pods.decode(body)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the answer is not a pod: {error}") from error
        if found.metadata.uid != pod.uid:
            raise Gone(409, f"pod {pod} has another UID now: {found.metadata.uid} instead of {pod.uid}")
        return NodeName(found.spec.node_name) if found.spec.node_name else None


class ApiEvictor:
    """`ports.Evictor`, by the pod's subresource `eviction`; past the budgets, by deletion."""

    def __init__(self, requests: Requests, *, now: Callable[[], float] = time.time) -> None:
        self._requests = requests
        self._now = now

    async def evict(self, pod: PodRef, *, dry_run: bool = False) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = _pod_path(pod, "eviction") + ("?dryRun=All" if dry_run else "")
        await self._requests.request("POST", path, _encode(eviction))

    async def preempt(self, pod: PodRef, why: str, *, dry_run: bool = False) -> None:
        if not dry_run:
            # The API server sets this condition on an eviction. A Job's podFailurePolicy may depend on it.
            condition = {"type": "DisruptionTarget", "status": "True", "reason": _PREEMPTED, "message": why}
            at = datetime.fromtimestamp(self._now(), UTC).strftime(_STAMP)
            await self._says(pod, {**condition, "lastTransitionTime": at})
        options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
        if dry_run:
            options["dryRun"] = ["All"]
        await self._requests.request("DELETE", _pod_path(pod), _encode(options), accept=METADATA_ONLY)

    async def _says(self, pod: PodRef, condition: Mapping[str, object]) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        with asking_for_no_version():
            await self._requests.request(
                "PATCH",
                _pod_path(pod, "status"),
                _encode(patch),
                content_type=STRATEGIC_MERGE_PATCH,
                accept=METADATA_ONLY,
            )


class ApiNominator:
    """`ports.Nominator`, by the pod's status."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def nominate(self, pod: PodRef, node: NodeName | None) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        with asking_for_no_version():
            await self._requests.request(
                "PATCH", _pod_path(pod, "status"), _encode(patch), content_type=MERGE_PATCH, accept=METADATA_ONLY
            )


class ApiWaker:
    """`ports.Waker` and `ports.Tidier`, by patches of the pod."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def wake(self, pod: PodRef, token: str) -> None:
        await self._annotate(pod, WAKE, token)

    async def tidy(self, pod: PodRef) -> None:
        await self._annotate(pod, WAKE, None)

    async def void_attempt(self, pod: PodRef) -> None:
        await self._annotate(pod, ATTEMPT, None)

    async def open_gate(self, pod: PodRef) -> None:
        # Gates of other clients stay.
        without_ours = [{"$patch": "delete", "name": GANG_GATE}]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": without_ours}}
        await self._patch(pod, patch, STRATEGIC_MERGE_PATCH)

    async def _annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        await self._patch(pod, {"metadata": {"uid": pod.uid, "annotations": {key: value}}}, MERGE_PATCH)

    async def _patch(self, pod: PodRef, patch: Mapping[str, object], content_type: str) -> None:
        with asking_for_no_version():
            await self._requests.request(
                "PATCH", _pod_path(pod), _encode(patch), content_type=content_type, accept=METADATA_ONLY
            )


class ApiRecorder:
    """`ports.Recorder`: events that `kubectl describe pod` shows, from component `escher`.

    An event's name depends on its content, so the API server refuses to store it twice. `instance` identifies the
    replica.
    """

    def __init__(self, requests: Requests, *, instance: str = COMPONENT, now: Callable[[], float] = time.time) -> None:
        self._requests = requests
        self._instance = instance
        self._now = now

    async def record(self, notice: Notice) -> None:
        pod = notice.pod
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": _event_name(notice), "namespace": pod.namespace},
            "eventTime": datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": COMPONENT,
            "reportingInstance": self._instance[:128],
            "type": notice.type.value,
            "reason": notice.reason,
            "action": "Scheduling",
            "note": _shortened(printable(notice.note)),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
        }
        path = address("apis", "events.k8s.io", "v1", "namespaces", pod.namespace, "events")
        # Occupied: an attempt that seemed to fail, or an earlier process of this service, has stored it.
        with suppress(Occupied):
            await self._requests.request("POST", path, _encode(event), accept=METADATA_ONLY)


class ApiNodeStatusWriter:
    """`ports.NodeStatusWriter`, by a patch of the node's status."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def advertise(self, node: NodeName, desired: Mapping[ResourceKey, int], absent: Iterable[ResourceKey]) -> str:
        """As the port says. A desired 0 removes the key: kubelets fail pods that need one at 0."""
        amounts: dict[str, str | None] = dict.fromkeys(absent)
        amounts |= {resource: str(units) if units else None for resource, units in desired.items()}
        # Both: the scheduler reads allocatable, and a kubelet copies capacity over it at its next sync.
        patch = {"status": {"capacity": amounts, "allocatable": amounts}}
        with asking_for_no_version():
            answer = await self._requests.request(
                "PATCH",
                address("api", "v1", "nodes", node, "status"),
                _encode(patch),
                content_type=MERGE_PATCH,
                accept=METADATA_ONLY,
            )
        try:
            return _versioned.decode(answer).metadata.version
        except msgspec.DecodeError:
            return ""

    async def managers(self, node: NodeName, resources: Iterable[ResourceKey]) -> Sequence[str]:
        """As the port says. It lists one node, because Escher's rights on nodes include list."""
        path = address("api", "v1", "nodes", query={"fieldSelector": f"metadata.name={node}"})
        answer = await self._requests.request("GET", path, accept=_METADATA_LIST)
        try:
            found = _managed_nodes.decode(answer)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the answer is not a list of nodes: {error}") from error
        wanted = {f"f:{resource}" for resource in resources}
        managed = [each for item in found.items or () for each in item.metadata.managed or ()]
        return sorted({each.manager for each in managed if _status_keys(each) & wanted})


def _status_keys(managed: _Managed) -> set[str]:
    status = (managed.fields or {}).get("f:status")
    parts = [status.get("f:capacity"), status.get("f:allocatable")] if isinstance(status, dict) else []
    return {key for part in parts if isinstance(part, dict) for key in part}


def _event_name(notice: Notice) -> str:
    said = "\n".join((notice.pod.uid, notice.reason, notice.note))
    tail = f".{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    return notice.pod.name[: _LONGEST_NAME - len(tail)].rstrip(".-") + tail


def _shortened(note: str) -> str:
    """At most `_LONGEST_NOTE` bytes, cut between characters."""
    whole = note.encode()
    if len(whole) <= _LONGEST_NOTE:
        return note
    return whole[: _LONGEST_NOTE - 3].decode(errors="ignore") + "…"
