"""Bounded mapping: keeps the most recently set keys."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Bounded(MutableMapping[_K, _V]):
    """The `limit` keys that were set last, oldest first; setting a known key makes it newest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[_K, _V] = {}

    def __setitem__(self, key: _K, value: _V) -> None:
        self._known.pop(key, None)
        self._known[key] = value
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]

    def __getitem__(self, key: _K) -> _V:
        return self._known[key]

    def __delitem__(self, key: _K) -> None:
        del self._known[key]

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __iter__(self) -> Iterator[_K]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
