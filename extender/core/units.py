"""Units: sums of vectors, and what a resource is short of. Must not know which resources exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector

_Key = TypeVar("_Key")
_Outer = TypeVar("_Outer")


def add(vectors: Iterable[Vector]) -> dict[ResourceKey, int]:
    """The sum, resource by resource."""
    total: dict[ResourceKey, int] = {}
    for vector in vectors:
        for resource, units in vector.items():
            total[resource] = total.get(resource, 0) + units
    return total


def add_to(total: dict[ResourceKey, int], units: Vector, sign: int = 1) -> None:
    """`total` has `units` more of each resource, or with sign -1 less."""
    for resource, number in units.items():
        total[resource] = total.get(resource, 0) + sign * number


def count_in(counts: dict[_Key, int], key: _Key, by: int) -> None:
    """So many more of it; what comes to 0 is left out."""
    number = counts.get(key, 0) + by
    if number:
        counts[key] = number
    else:
        counts.pop(key, None)


def add_in(counts: dict[_Outer, dict[_Key, int]], outer: _Outer, key: _Key, by: int) -> None:
    """As `count_in`, in the counts of the outer key; what has none is absent."""
    of_outer = counts.setdefault(outer, {})
    count_in(of_outer, key, by)
    if not of_outer:
        del counts[outer]


@dataclass(frozen=True, slots=True)
class Short:
    """A resource of which less is free than was asked. `free` is below 0 where capacity was lowered under holders."""

    resource: ResourceKey
    asked: int
    free: int
