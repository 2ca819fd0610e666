"""Sizes: the sizes of values in an expression, and the paths by which sizes are looked up.

A size counts characters, items or keys. Values without a size, such as numbers and objects, have zero if a schema
describes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LIMITLESS = 2**64 - 1


class Size(NamedTuple):
    least: int
    most: int

    def plus(self, other: Size) -> Size:
        return Size(_bounded(self.least + other.least), _bounded(self.most + other.most))

    def times(self, other: Size) -> Size:
        return Size(_bounded(self.least * other.least), _bounded(self.most * other.most))

    def either(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN = Size(0, LIMITLESS)
ONE = Size(1, 1)


def part_of(size: int, factor: float) -> int:
    """This fraction of a size, rounded up."""
    return _bounded(math.ceil(size * factor))


def _bounded(amount: int) -> int:
    return min(amount, LIMITLESS)


@dataclass(frozen=True)
class Extent:
    """The extent of a value: at most `most` elements and at least `least` bytes of JSON.

    Its parts have extents, too: `items` of lists and maps, `keys` of maps, `fields` of objects, by their names in
    expressions."""

    most: int
    least: int
    fields: Mapping[str, Extent] = field(default_factory=dict)
    items: Extent | None = None
    keys: Extent | None = None

    def at(self, path: Path | None) -> Size | None:
        """The size of the path's target; None if unknown. The path's first step is ignored."""
        if path is None:
            return None
        here = self
        for name in path.steps()[1:]:
            inner = here._part(name)
            if inner is None:
                return None
            here = inner
        return Size(0, here.most)

    def _part(self, step: str) -> Extent | None:
        match step:
            case "@items" | "@values":
                return self.items
            case "@keys":
                return self.keys
        return self.fields.get(step)


class Path:
    """The steps from a variable to a part.

    Paths that extend the same path share memory like Go slices: if there is room, the last extension overwrites the
    steps of the others. kube-apiserver's estimate has this effect, so it is kept."""

    def __init__(self, cells: list[str], length: int) -> None:
        self._cells, self._length = cells, length

    def steps(self) -> list[str]:
        return self._cells[: self._length]

    def to(self, name: str) -> Path:
        cells, length = self._cells, self._length
        if length == len(cells):
            cells = [*cells, *[""] * length]
        cells[length] = name
        return Path(cells, length + 1)

    def apart(self, name: str) -> Path:
        """Like `to`, in memory of its own."""
        return Path([*self.steps(), name], self._length + 1)


def path(first: str) -> Path:
    return Path([first], 1)


def onward(before: Path | None, name: str) -> Path:
    return path(name) if before is None else before.to(name)
