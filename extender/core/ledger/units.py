"""Units: sums of vectors, and shortages of a resource."""

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
    """`total` has `units` more of each resource, or less with sign -1."""
    for resource, number in units.items():
        total[resource] = total.get(resource, 0) + sign * number


def count_in(counts: dict[_Key, int], key: _Key, by: int) -> None:
    """Adds `by` to the count; a count of 0 is removed."""
    number = counts.get(key, 0) + by
    if number:
        counts[key] = number
    else:
        counts.pop(key, None)


def add_in(counts: dict[_Outer, dict[_Key, int]], outer: _Outer, key: _Key, by: int) -> None:
    """As `count_in`, in the counts of `outer`; empty counts are removed."""
    of_outer = counts.setdefault(outer, {})
    count_in(of_outer, key, by)
    if not of_outer:
        del counts[outer]


@dataclass(frozen=True, slots=True)
class Short:
    """A resource with less free than asked; `free` is negative if capacity fell below holdings."""

    resource: ResourceKey
    asked: int
    free: int
