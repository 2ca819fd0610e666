"""Held objects: keeps the objects of one kind that a reflector reports, for later readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class HeldObjects(Generic[T]):
    """A sink. `key` identifies an object."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._objects: dict[Hashable, T] = {}

    @property
    def objects(self) -> Collection[T]:
        return self._objects.values()

    def replace(self, objects: Iterable[T]) -> Iterable[None]:
        self._objects = {self._key(each): each for each in objects}
        return ()

    def upsert(self, item: T) -> None:
        self._objects[self._key(item)] = item

    def remove(self, item: T) -> None:
        self._objects.pop(self._key(item), None)
