"""Bounded mapping: keeps the most recently set keys."""

from __future__ import annotations

from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Bounded(dict[_K, _V]):
    """The `limit` keys that were set last, oldest first; setting a known key makes it newest.

    Keys are set by `[]` and `setdefault` alone: other ways would pass by the limit, so these methods are None. Each
    event asks several of these: reading is as fast as of a dict."""

    __slots__ = ("_limit",)
    update = copy = popitem = __ior__ = __or__ = None  # type: ignore[assignment]

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: _K, value: _V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._limit:
            del self[next(iter(self))]

    def setdefault(self, key: _K, default: _V) -> _V:
        if key not in self:
            self[key] = default
        return self[key]
