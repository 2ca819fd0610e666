"""Pod requests: what a pod counts for on a node, exactly as kube-scheduler counts it.

The source is PodRequests and AggregateContainerRequests of k8s.io/component-helpers/resource/helpers.go (1.36), as
called by the scheduler's NodeInfo. The other source is the defaulting of pkg/apis/core/v1/defaults.go (a limit without
a request is a request). So a manifest that no API server has seen yet counts the same. Quantities are summed exactly,
in thousandths (the API server rounds them up to these), and only the sum is rounded up to whole units.

Not counted: requests by dynamic resource allocation (an alpha feature of 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from extender.kube.names import CPU, PODS, ResourceKey
from extender.kube.quantities import InvalidQuantity, Vector, parse_quantity

Quantity = str | int | float
"""A quantity as JSON may spell it; the API server always answers with text."""

Amounts = tuple[tuple[str, Quantity], ...]
"""Quantities by resource, as the items of a JSON object."""

_LARGEST = 2**63 - 1
_WHOLE_POD = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


class UnreadableObject(ValueError):
    """An object that cannot be read. `field` and `value`: where; `str()`: also why."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.value = value


class ContainerAmounts(NamedTuple):
    """One container's requests. `actuated`: what a kubelet reports as in force; None before."""

    requests: Amounts
    limits: Amounts = ()
    sidecar: bool = False
    """An init container that goes on running (restartPolicy Always)."""
    actuated: Amounts | None = None
    allocated: Amounts = ()


class PodAmounts(NamedTuple):
    """All parts of a pod that affect its requests. Equal amounts give the same vector object."""

    containers: tuple[ContainerAmounts, ...]
    init_containers: tuple[ContainerAmounts, ...] = ()
    overhead: Amounts = ()
    whole: ContainerAmounts | None = None
    """Pod-level resources, where they are set."""
    resize_infeasible: bool = False


_Thousandths = dict[str, int]
_SHARED = 32
"""Most containers, and amounts in one, of a shared vector. The cache keeps it after its pods."""


def effective_requests(amounts: PodAmounts) -> Vector:
    """Units by resource, with `pods: 1` and without zeros. Mostly shared: never change it.

    Raises UnreadableObject for a quantity that is malformed or negative.
    """
    containers = amounts.containers + amounts.init_containers if amounts.init_containers else amounts.containers
    if len(containers) > _SHARED:
        return _requested.__wrapped__(amounts)
    for each in containers:
        if len(each.requests) > _SHARED or len(each.limits) > _SHARED:
            return _requested.__wrapped__(amounts)
    return _requested(amounts)


@lru_cache(maxsize=8192)
def _requested(amounts: PodAmounts) -> Vector:
    infeasible = amounts.resize_infeasible
    total: _Thousandths = {}
    for number, container in enumerate(amounts.containers):
        _add(total, _requests(f"spec.containers[{number}].resources", container, infeasible))
    sidecars: _Thousandths = {}
    starting: _Thousandths = {}
    for number, container in enumerate(amounts.init_containers):
        asked = _requests(f"spec.initContainers[{number}].resources", container, infeasible)
        if container.sidecar:
            _add(total, asked)
            _add(sidecars, asked)
            _raise_to(starting, sidecars)
        else:
            # While it runs, the sidecars started before it also run; later ones do not yet.
            _add(asked, sidecars)
            _raise_to(starting, asked)
    _raise_to(total, starting)
    if amounts.whole is not None:
        total |= _pod_level(amounts.whole, total, infeasible)
    _add(total, _thousandths("spec.overhead", amounts.overhead))
    vector = {
        ResourceKey(resource): min(units if resource == CPU else -(-units // 1000), _LARGEST)
        for resource, units in total.items()
        if units
    }
    vector[PODS] = 1
    return _shared(tuple(vector.items())) if len(vector) <= _SHARED else vector


@lru_cache(maxsize=16384)
def _shared(items: tuple[tuple[ResourceKey, int], ...]) -> Vector:
    """One object for all equal sums, such as those of a pod before and after it runs."""
    return dict(items)


def _requests(where: str, asked: ContainerAmounts, infeasible: bool) -> _Thousandths:
    spec = _thousandths(f"{where}.limits", asked.limits) | _thousandths(f"{where}.requests", asked.requests)
    return spec if asked.actuated is None else _during_resize(spec, asked.actuated, asked.allocated, infeasible)


def _during_resize(spec: _Thousandths, actuated: Amounts, allocated: Amounts, infeasible: bool) -> _Thousandths:
    """The largest of request, kubelet's promise and amount in force (in-place resize)."""
    effective = {} if infeasible else spec
    _raise_to(effective, _thousandths("status resources", actuated))
    _raise_to(effective, _thousandths("status allocatedResources", allocated))
    return effective


def _pod_level(whole: ContainerAmounts, containers: _Thousandths, infeasible: bool) -> _Thousandths:
    """Pod-level requests, which replace the containers' sum for resources that can have them."""
    limits = _thousandths("spec.resources.limits", whole.limits)
    spec = _thousandths("spec.resources.requests", whole.requests)
    for resource, units in limits.items():
        # Huge pages cannot be overcommitted: their limit is the request, whatever the containers say.
        if resource.startswith(_HUGE_PAGES) or resource not in containers:
            spec.setdefault(resource, units)
    asked = {resource: units for resource, units in spec.items() if _has_pod_level(resource)}
    if not asked or whole.actuated is None:
        return asked
    effective = _during_resize(dict(asked), whole.actuated, whole.allocated, infeasible)
    return {resource: effective.get(resource, 0) for resource in asked}


def _has_pod_level(resource: str) -> bool:
    return resource in _WHOLE_POD or resource.startswith(_HUGE_PAGES)


def _add(total: _Thousandths, more: _Thousandths) -> None:
    for resource, units in more.items():
        total[resource] = total.get(resource, 0) + units


def _raise_to(floor: _Thousandths, other: _Thousandths) -> None:
    for resource, units in other.items():
        if units > floor.get(resource, -1):
            floor[resource] = units


def _thousandths(where: str, amounts: Iterable[tuple[str, Quantity]]) -> _Thousandths:
    try:
        return {resource: _count(str(quantity)) for resource, quantity in amounts}
    except InvalidQuantity:
        return {resource: _count_or_refuse(where, resource, quantity) for resource, quantity in amounts}


def _count_or_refuse(where: str, resource: str, quantity: Quantity) -> int:
    try:
        return _count(str(quantity))
    except InvalidQuantity as error:
        raise UnreadableObject(f"{where}[{resource}]", quantity, str(error)) from None


@lru_cache(maxsize=65536)
def _count(text: str) -> int:
    value = parse_quantity(text)
    if value < 0:
        raise InvalidQuantity(f"{text!r} is negative; write 0 or more")
    return min(-((-value * 1000) // 1), _LARGEST * 1000)
