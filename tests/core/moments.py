"""A world at a moment, put back in place to how it was then as often as is wanted, at less cost than a copy of it.

Only containers change, and objects of ours that are not frozen; they are found by following all references, through
what is frozen as well where it has a field for one that changes. Whatever could be reached from the world is again as
it was; the objects are the same ones, and those that came later are nobody's any more. Must not know what the world is
about.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from gc import get_referents
from itertools import compress
from types import MethodType
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt


class Moment:
    """`before`: another of the same world; what the two have in common is not looked for again."""

    def __init__(self, world: object, before: Moment | None = None) -> None:
        parts = _parts_of(world) if before is None else before._parts.with_what_came(world)
        self._parts: Parts = parts
        self._in_dicts = list(map(dict.copy, parts.dicts))
        self._in_sets = list(map(set.copy, parts.sets))
        self._in_lists = [each[:] for each in parts.lists]
        self._in_columns = [each.copy() for each in parts.columns]
        self._in_queues = list(map(tuple, parts.queues))
        self._in_slots = list(map(getattr, parts.slotted, parts.slots))

    def restore(self) -> None:
        """The world is as it was then."""
        parts = self._parts
        _all(map(dict.clear, parts.dicts))
        _all(map(dict.update, parts.dicts, self._in_dicts))
        _all(map(set.clear, parts.sets))
        _all(map(set.update, parts.sets, self._in_sets))
        for each, items in zip(parts.lists, self._in_lists, strict=True):
            each[:] = items
        for column, numbers in zip(parts.columns, self._in_columns, strict=True):
            column[:] = numbers
        _all(map(deque.clear, parts.queues))
        _all(map(deque.extend, parts.queues, self._in_queues))
        _all(map(setattr, parts.slotted, parts.slots, self._in_slots))


def _all(calls: Iterable[object]) -> None:
    """Each of them is made, faster than by a loop."""
    deque(calls, maxlen=0)


@dataclass
class Parts:
    """What of a world could change, and what leads there."""

    ids: set[int] = field(default_factory=set)
    all: list[Any] = field(default_factory=list)
    """Each once. None of them ends while it is here: no other has its id."""
    leading_on: list[Any] = field(default_factory=list)
    """Those that can refer to another one of them tomorrow."""
    dicts: list[dict[Any, Any]] = field(default_factory=list)
    """Those of objects' attributes are among them."""
    sets: list[set[Any]] = field(default_factory=list)
    lists: list[Any] = field(default_factory=list)
    columns: list[npt.NDArray[Any]] = field(default_factory=list)
    queues: list[deque[Any]] = field(default_factory=list)
    slotted: list[object] = field(default_factory=list)
    """As often as it has slots."""
    slots: list[str] = field(default_factory=list)
    walked: int = 0
    """How many they were when all that could be reached was here and nothing else."""

    def with_what_came(self, world: object) -> Parts:
        """With what can be reached now and could not before. What cannot be any more is left out now and then."""
        came = self._unknown(self.leading_on)
        if not came:
            return self
        if len(self.all) > 2 * self.walked:
            return _parts_of(world)
        parts = Parts(**{name: each if name == "walked" else each.copy() for name, each in vars(self).items()})
        parts.add(came)
        return parts

    def add(self, parts: list[Any]) -> None:
        """These, and whatever else of the kind can be reached from them."""
        while parts:
            self.ids.update(map(id, parts))
            self.all += parts
            for each in parts:
                self._sort(each)
            parts = self._unknown(parts)

    def _unknown(self, among: Iterable[Any]) -> list[Any]:
        """What they refer to and is not here yet."""
        referred = get_referents(*among)
        changing = list(compress(referred, map(_CHANGES.__getitem__, map(type, referred))))
        unknown = set(map(id, changing)) - self.ids
        came = compress(changing, map(unknown.__contains__, map(id, changing))) if unknown else ()
        return list({id(each): each for each in came}.values())

    def _sort(self, each: Any) -> None:
        kind = type(each)
        if isinstance(each, dict):
            self.dicts.append(each)
        elif kind is set:
            self.sets.append(each)
        elif kind is list or kind is array:
            self.lists.append(each)
        elif kind is np.ndarray:
            self.columns.append(each)
        elif kind is deque:
            self.queues.append(each)
        names = _SLOTS[kind]
        self.slotted += [each] * len(names)
        self.slots += names
        if isinstance(each, (dict, list, set, deque)) or names:
            self.leading_on.append(each)
        if kind is not MethodType and hasattr(each, "__dict__"):
            vars(each)  # From now on it refers to its attributes by a dictionary, which is found with it.


def _parts_of(world: object) -> Parts:
    parts = Parts()
    parts.add([world])
    parts.walked = len(parts.all)
    return parts


_CONTAINERS = (dict, Counter, list, set, deque, array, np.ndarray, MethodType)


class _Changes(dict[type, bool]):
    """Whether values of a type may change, or lead to one that does."""

    def __missing__(self, kind: type) -> bool:
        changes = self[kind] = kind in _CONTAINERS or issubclass(kind, (tuple, frozenset)) or _changes(kind)
        assert changes or not issubclass(kind, (dict, list, set, deque, array)), f"{kind}: not needed yet"
        return changes


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(("extender.", "tests."))


def _is_frozen(kind: type) -> bool:
    params = getattr(kind, "__dataclass_params__", None)
    return params is not None and bool(params.frozen)


def _changes(kind: Any) -> bool:
    if not isinstance(kind, type) or not _is_ours(kind):
        return False
    if _is_frozen(kind):
        return any(_changes(part) for hint in get_type_hints(kind).values() for part in (hint, *get_args(hint)))
    return not issubclass(kind, (Enum, tuple))


class _Slots(dict[type, list[str]]):
    """The slots of a type that can be set."""

    def __missing__(self, kind: type) -> list[str]:
        ours = [base for base in kind.__mro__ if _is_ours(base)]
        names = [name for base in ours for name in vars(base).get("__slots__", ()) if not _is_frozen(base)]
        self[kind] = names
        return names


_CHANGES = _Changes()
_SLOTS = _Slots()
