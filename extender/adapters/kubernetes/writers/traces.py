"""Traces: what Escher has left in a cluster; finds and removes it.

These are EphemeralResources, units of Escher's domain in node status, gates of gangs, the service's annotations on
pods, and EndpointSlices of the leader's Service. What people and applications wrote (labels, annotations, requests,
EscherPolicies) stays.

A trace does not say which installation left it. No service of any installation may run meanwhile: it would restore what
policies keep, and lose what applications set.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import structlog

from extender.adapters.kubernetes.codecs.resources import EphemeralResources
from extender.adapters.kubernetes.codecs.schema import path_of
from extender.adapters.kubernetes.writers.writers import COMPONENT, ApiNodeStatusWriter, ApiWaker
from extender.adapters.translation.objects import WAKE
from extender.app.contracts.ports import PodRef
from extender.core.attempt import ATTEMPT
from extender.core.gang_ask import GANG_GATE
from extender.core.names import DOMAIN, in_domain
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.nesting import Decoder

_log = structlog.get_logger(__name__)

_PAGE = 500
_OF_THE_SERVICE = f"app.kubernetes.io/name={COMPONENT},app.kubernetes.io/component=service"
"""Labels of the service's Deployment, as the chart and kustomize write them."""
_SLICES = "endpointslice.kubernetes.io/managed-by"
"""Label: the manager of an EndpointSlice. Escher's slices have its domain."""


class _Named(msgspec.Struct):
    name: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    deleted_at: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Named] | None = None
    replicas: int = 1


class _Status(msgspec.Struct):
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None


class _Object(msgspec.Struct):
    """The fields that are read of a node, a pod, a Deployment or one of Escher's objects."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMetadata(msgspec.Struct):
    following: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    items: list[_Object]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_lists = Decoder(_List)


@dataclass(frozen=True, slots=True)
class Traces:
    """What was found. `resources`: namespace and name of each object; `nodes`: keys per node."""

    resources: tuple[tuple[str, str], ...] = ()
    nodes: dict[str, frozenset[ResourceKey]] = field(default_factory=dict)
    gated: tuple[PodRef, ...] = ()
    annotated: tuple[PodRef, ...] = ()
    slices: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resources or self.nodes or self.gated or self.annotated or self.slices)

    def __str__(self) -> str:
        numbers = {
            "EphemeralResources": len(self.resources),
            "nodes with Escher's resources": len(self.nodes),
            "pods with Escher's scheduling gate": len(self.gated),
            "pods with Escher's annotations": len(self.annotated),
            "EndpointSlices": len(self.slices),
        }
        return ", ".join(f"{number} {what}" for what, number in numbers.items() if number) or "nothing"


async def services(requests: Requests) -> tuple[str, ...]:
    """`namespace/name` of each service's Deployment with replicas. Raises Unavailable, Refused."""
    try:
        return tuple(
            [
                f"{each.metadata.namespace}/{each.metadata.name}"
                async for each in _every(requests, address("apis", "apps", "v1", "deployments"), _OF_THE_SERVICE)
                if each.spec.replicas and not each.metadata.deleted_at
            ]
        )
    except Gone:
        # The embedded cluster has no Deployments.
        return ()


async def found(requests: Requests) -> Traces:
    """Finds all traces. Raises Unavailable, Refused."""
    resources = await _where_there(requests, path_of(EphemeralResources.plural))
    slices = await _where_there(requests, _slices(), f"{_SLICES}={DOMAIN}")
    nodes = {}
    async for node in _every(requests, address("api", "v1", "nodes")):
        amounts = {**(node.status.capacity or {}), **(node.status.allocatable or {})}
        if keys := frozenset(ResourceKey(key) for key in amounts if in_domain(key)):
            nodes[node.metadata.name] = keys
    gated, annotated = [], []
    async for pod in _every(requests, address("api", "v1", "pods")):
        said = pod.metadata
        reference = PodRef(said.namespace, said.name, PodUid(said.uid))
        if any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates or ()):
            gated.append(reference)
        if {WAKE, ATTEMPT} & (said.annotations or {}).keys():
            annotated.append(reference)
    return Traces(resources, nodes, tuple(gated), tuple(annotated), slices)


async def remove(requests: Requests, traces: Traces) -> None:
    """Removes the traces, first what pods wait for. Tries each; others may keep or refuse some."""
    writer, waker = ApiNodeStatusWriter(requests), ApiWaker(requests)
    for pod in traces.gated:
        with _told(f"the gate of pod {pod}"):
            await waker.open_gate(pod)
    for namespace, name in traces.resources:
        with _told(f"EphemeralResource {namespace}/{name}"):
            path = f"{path_of(EphemeralResources.plural, namespace)}{address(name)}"
            await requests.request("DELETE", path)
    for namespace, name in traces.slices:
        with _told(f"EndpointSlice {namespace}/{name}"):
            await requests.request("DELETE", f"{_slices(namespace)}{address(name)}")
    for node, keys in traces.nodes.items():
        with _told(f"resources of node {node}"):
            await writer.advertise(NodeName(node), {}, keys)
    for pod in traces.annotated:
        with _told(f"annotations of pod {pod}"):
            await waker.tidy(pod)
            await waker.void_attempt(pod)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Logs what cannot be removed; the next search finds it again."""
    try:
        yield
    except Gone:
        pass
    except (Refused, Unavailable) as error:
        _log.warning("cannot be removed", what=what, why=str(error))


async def _where_there(requests: Requests, path: str, selector: str = "") -> tuple[tuple[str, str], ...]:
    """Namespace and name of each; none if the kind is not or no longer installed."""
    try:
        return tuple([(each.metadata.namespace, each.metadata.name) async for each in _every(requests, path, selector)])
    except Gone:
        return ()


def _slices(namespace: str | None = None) -> str:
    group = ("apis", "discovery.k8s.io", "v1")
    within = () if namespace is None else ("namespaces", namespace)
    return address(*group, *within, "endpointslices")


async def _every(requests: Requests, path: str, selector: str = "") -> AsyncGenerator[_Object, None]:
    """The items of a collection, page by page."""
    following = ""
    while True:
        query = address(query={"limit": _PAGE, "labelSelector": selector, "continue": following}).removeprefix("/")
        try:
            page = _lists.decode(await requests.request("GET", path + query))
        except msgspec.DecodeError as error:
            raise Unavailable(f"GET {path}: the answer is not a list: {error}") from error
        for each in page.items:
            yield each
        if not (following := page.metadata.following):
            return
