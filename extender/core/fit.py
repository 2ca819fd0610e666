"""Fit: how often a need fits into what is free, how large a part of it does, and what is short.

The one place where that is worked out. Free is capacity, less what is held, plus `change`: what would be free beside
that if a plan were carried out. Must not know nodes, pods nor plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType

from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector

Need = frozenset[tuple[ResourceKey, int]]
"""Requests without what is 0."""
Asked = Collection[tuple[ResourceKey, int]]
"""As `Need`, in an order."""
LARGEST = 10_000
"""Where nothing is asked for, everything fits: so often, it is said."""
MOST = 2**31 - 1
"""Nothing is counted beyond that."""
NOTHING: Vector = MappingProxyType({})


def need_of(requests: Vector) -> Need:
    return frozenset((resource, units) for resource, units in requests.items() if units > 0)


def asked_of(requests: Vector) -> tuple[tuple[ResourceKey, int], ...]:
    """As `need_of`, in the order of the requests."""
    return tuple((resource, units) for resource, units in requests.items() if units > 0)


def lacking(
    capacity: Vector, held: Vector, asked: Iterable[tuple[ResourceKey, int]], change: Vector | None = None
) -> tuple[ResourceKey, int, int] | None:
    """The first resource of which less is free than is asked for, with both; None if all fits. To ask for 0 of what is
    overdrawn fits."""
    for resource, units in asked:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        if units > free and units > 0:
            return resource, units, free
    return None


def copies(capacity: Vector, held: Vector, need: Asked, change: Vector | None = None, most: int | None = None) -> int:
    """How often the need fits whole; not counted beyond `most`."""
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
    """The same with the fraction that is left; infinite where nothing is asked for, below 0 for what is overdrawn."""
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
    """As much of the need as is free, and how large a part of it that is: of the scarcest resource, 0 to 1."""
    found: dict[ResourceKey, int] = {}
    share = 1.0
    for resource, units in need:
        free = capacity.get(resource, 0) - held.get(resource, 0)
        if change is not None:
            free += change.get(resource, 0)
        found[resource] = max(0, min(units, free))
        share = min(share, found[resource] / units)
    return found, share
