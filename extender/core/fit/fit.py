"""Fit: how often a need fits into free units, how large a part of it does, and what is short.

No other module computes this. Free units are the capacity less the held units. `change` adds the units that a plan
would free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType

from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector

Need = frozenset[tuple[ResourceKey, int]]
"""Requests without zeros."""
Asked = Collection[tuple[ResourceKey, int]]
"""As `Need`, in an order."""
LARGEST = 10_000
"""The number of copies that fit if nothing is asked for."""
MOST = 2**31 - 1
"""Counts stop here."""
NOTHING: Vector = MappingProxyType({})


def need_of(requests: Vector) -> Need:
    if 0 not in requests.values():
        # Mostly so.
        return frozenset(requests.items())
    return frozenset(asked_of(requests))


def asked_of(requests: Vector) -> tuple[tuple[ResourceKey, int], ...]:
    """As `need_of`, in the order of the requests."""
    return tuple((resource, units) for resource, units in requests.items() if units > 0)


def lacking(
    capacity: Vector, held: Vector, asked: Iterable[tuple[ResourceKey, int]], change: Vector | None = None
) -> tuple[ResourceKey, int, int] | None:
    """The first resource that is short, with asked and free units, or None. 0 always fits."""
    for resource, units in asked:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        if units > free and units > 0:
            return resource, units, free
    return None


def copies(capacity: Vector, held: Vector, need: Asked, change: Vector | None = None, most: int | None = None) -> int:
    """How many whole copies of the need fit, but at most `most`."""
    if most is None:
        most = MOST if need else LARGEST
    for resource, units in need:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        most = min(most, free // units)
        if most <= 0:
            return 0
    return most


def times(capacity: Vector, held: Vector, need: Asked, change: Vector | None = None) -> float:
    """As `copies`, with the fraction; infinite for an empty need, negative if overdrawn."""
    found = float("inf")
    for resource, units in need:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        found = min(found, free / units)
    return found


def part(
    capacity: Vector, held: Vector, need: Asked, change: Vector | None = None
) -> tuple[dict[ResourceKey, int], float]:
    """The free part of the need, and its fraction from 0 to 1: that of the scarcest resource."""
    found: dict[ResourceKey, int] = {}
    share = 1.0
    for resource, units in need:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        found[resource] = max(0, min(units, free))
        share = min(share, found[resource] / units)
    return found, share
