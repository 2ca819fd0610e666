"""Reading: interprets the shapes of `objects`: requests, units, node affinity, tolerations, taints.

A pod with quantities that cannot be counted is an UnreadableObject. A *node* with such a quantity stays: the resource
counts as absent there, which is logged once, because everything else on that node is still true.

The returned vectors and tuples are shared between equal objects: never change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import structlog

from extender.kube.names import ResourceKey
from extender.kube.node_match import Requirement, SelectorTerm, Taint, Toleration
from extender.kube.objects import (
    Affinity,
    Container,
    ContainerStatus,
    NodeSpec,
    PodCondition,
    PodSpec,
    PodStatus,
    Quantities,
    Resources,
    SelectorRequirement,
)
from extender.kube.pod_requests import Amounts, ContainerAmounts, PodAmounts, effective_requests
from extender.kube.quantities import InvalidQuantity, Vector, count

_log = structlog.get_logger(__name__)
_SHARED = 32
"""Most tolerations of a shared tuple: the cache keeps it also when no pod has it any more."""
_SHARED_VALUES = 192
"""As `_SHARED`: most requirements and values in shared terms of node affinity."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def requests_of(spec: PodSpec, status: PodStatus | None) -> Vector:
    """What the pod counts for on a node. Raises UnreadableObject."""
    return effective_requests(_amounts(spec, status))


def units_of(quantities: Quantities | None) -> Vector:
    """A node's capacity or allocatable in whole units, with zeros, without malformed quantities."""
    return _vector(_items(quantities))


def required_terms(affinity: Affinity | None) -> tuple[SelectorTerm, ...]:
    """Required node affinity: at least one term must hold; empty means no requirement."""
    node_affinity = affinity.node_affinity if affinity is not None else None
    required = node_affinity and node_affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return ()
    terms = tuple(
        SelectorTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in required.node_selector_terms or ()
    )
    # Required node affinity without terms matches no node; an empty tuple would mean no requirement.
    values = sum(1 + len(each.values) for term in terms for each in (*term.labels, *term.fields))
    return (_same_terms if values <= _SHARED_VALUES else _same_terms.__wrapped__)(terms or (SelectorTerm(),))


@lru_cache(maxsize=256)
def _same_terms(terms: tuple[SelectorTerm, ...]) -> tuple[SelectorTerm, ...]:
    """One object for equal terms: a gang's members are compared by them."""
    return terms


def tolerations_of(spec: PodSpec) -> tuple[Toleration, ...]:
    if not spec.tolerations:
        return ()
    said = tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations)
    return (_tolerations if len(said) <= _SHARED else _tolerations.__wrapped__)(said)


def taints_of(spec: NodeSpec) -> tuple[Taint, ...]:
    return tuple(Taint(t.key, t.value, t.effect) for t in spec.taints or ())


def _amounts(spec: PodSpec, status: PodStatus | None) -> PodAmounts:
    reported: dict[str, ContainerStatus] = {}
    if status is not None and status.container_statuses:
        reported = {each.name: each for each in status.container_statuses}
    if status is not None and status.init_container_statuses:
        reported |= {each.name: each for each in status.init_container_statuses}
    return PodAmounts(
        tuple([_container(each, reported) for each in spec.containers]),
        tuple([_init_container(each, reported) for each in spec.init_containers]) if spec.init_containers else (),
        _items(spec.overhead),
        _whole(spec.resources, status) if spec.resources is not None else None,
        status is not None and status.conditions is not None and _resize_infeasible(status.conditions),
    )


def _container(
    container: Container, reported: Mapping[str, ContainerStatus], *, sidecar: bool = False
) -> ContainerAmounts:
    resources = container.resources
    requests = _items(resources.requests) if resources is not None else ()
    limits = _items(resources.limits) if resources is not None else ()
    seen = reported.get(container.name) if reported else None
    if seen is None or seen.resources is None:
        return ContainerAmounts(requests, limits, sidecar)
    return ContainerAmounts(
        requests, limits, sidecar, _items(seen.resources.requests), _items(seen.allocated_resources)
    )


def _init_container(container: Container, reported: Mapping[str, ContainerStatus]) -> ContainerAmounts:
    if container.restart_policy == "Always":
        return _container(container, reported, sidecar=True)
    # Only containers that keep running can be resized, so kube-scheduler ignores the others' status.
    return _container(container, _NOTHING)


def _whole(resources: Resources, status: PodStatus | None) -> ContainerAmounts:
    requests, limits = _items(resources.requests), _items(resources.limits)
    if status is None or status.resources is None:
        return ContainerAmounts(requests, limits)
    return ContainerAmounts(
        requests, limits, False, _items(status.resources.requests), _items(status.allocated_resources)
    )


def _items(quantities: Quantities | None) -> Amounts:
    return tuple(quantities.items()) if quantities else ()


def _resize_infeasible(conditions: list[PodCondition]) -> bool:
    for condition in conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _requirements(raw: list[SelectorRequirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(each.key, each.operator, tuple(each.values or ())) for each in raw or ())


@lru_cache(maxsize=4096)
def _tolerations(raw: tuple[tuple[str, str, str, str], ...]) -> tuple[Toleration, ...]:
    return tuple(Toleration(*each) for each in raw)


@lru_cache(maxsize=16384)
def _vector(amounts: Amounts) -> Vector:
    units: dict[ResourceKey, int] = {}
    for resource, quantity in amounts:
        counted = _count_if_possible(resource, str(quantity))
        if counted is not None:
            units[ResourceKey(resource)] = counted
    return units


@lru_cache(maxsize=1024)
def _count_if_possible(resource: str, quantity: str) -> int | None:
    try:
        return count(resource, quantity)
    except InvalidQuantity as error:
        _log.warning("a node's resource is treated as absent", resource=resource, why=str(error))
        return None
