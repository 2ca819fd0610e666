"""Sizes: how large the values in an expression may be, and the path by which the size of a part is looked up.

A size counts characters, items or keys. What has none, as numbers and objects, has zero where a schema says so.
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
    """So much of a size, rounded up."""
    return _bounded(math.ceil(size * factor))


def _bounded(amount: int) -> int:
    return min(amount, LIMITLESS)


@dataclass(frozen=True)
class Extent:
    """How large a value can be: `most` elements of it, and `least` bytes in JSON; and its parts likewise.

    `items` is of lists and maps, `keys` of maps, and `fields` of objects, by the names that expressions use.
    """

    most: int
    least: int
    fields: Mapping[str, Extent] = field(default_factory=dict)
    items: Extent | None = None
    keys: Extent | None = None

    def at(self, path: Path | None) -> Size | None:
        """The size of what the path leads to; None if that is unknown. Its first step is not looked at."""
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

    Paths that go on from the same one share their memory as slices of Go do: where there is room behind it, the last
    that went on overwrites the step of the others. kube-apiserver's estimate has this, and decides by it.
    """

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
        """As `to`, in memory of its own."""
        return Path([*self.steps(), name], self._length + 1)


def path(first: str) -> Path:
    return Path([first], 1)


def onward(before: Path | None, name: str) -> Path:
    return path(name) if before is None else before.to(name)
