"""Costs: the highest possible cost of an expression, exactly as kube-apiserver estimates it.

A step costs about one, and a read character a tenth. A macro costs as much as the loop that it replaces. Oddities of
kube-apiserver's estimate are kept, because the estimate decides which definitions it accepts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from kubesim.apiserver.cel.sizes import LIMITLESS, ONE, UNKNOWN, Extent, Path, Size, onward, part_of, path
from kubesim.apiserver.cel.syntax import Call, Entries, Index, Items, Literal, Message, Name, Select, Tree
from kubesim.apiserver.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    TEXT,
    TIMESTAMP,
    ListOf,
    MapOf,
    ObjectOf,
    OptionalOf,
    Type,
)

_OF_CHARACTER = 0.1
_OF_CHARACTER_IN_PATTERN = 0.25
_LIST = 10
"""The cost of making a list."""
_SCALARS = (BOOL, DOUBLE, INT, TIMESTAMP)


@dataclass(frozen=True)
class _Local:
    """A variable of a macro: the path of its values, and their size if no path gives it."""

    path: Path | None
    size: Size | None


class _Part:
    """An estimated part of an expression. `entry`: the item size of a list that was made here."""

    def __init__(
        self,
        cost: int,
        of_type: Type,
        *,
        path: Path | None = None,
        size: Size | None = None,
        entry: Size | None = None,
        otherwise: Size | None = None,
    ) -> None:
        self.cost, self.type, self.path, self.entry = cost, of_type, path, entry
        self._size, self._otherwise = size, otherwise

    def size(self, extent: Extent) -> Size:
        """The size, fixed at the first call."""
        if self._size is None:
            self._size = extent.at(self.path) or (ONE if _scalar(self.type) else self._otherwise or UNKNOWN)
        return self._size


_Scope = Mapping[str, _Local]


def most(tree: Tree, types: Mapping[int, Type], extent: Extent) -> int:
    """The cost. `types`: of its parts, by identity; `extent`: of the value of `self`."""
    return min(_Estimate(types, extent).part(tree, {}).cost, LIMITLESS)


def _scalar(of_type: Type) -> bool:
    return of_type in _SCALARS or (isinstance(of_type, OptionalOf) and _scalar(of_type.of))


class _Estimate:
    def __init__(self, types: Mapping[int, Type], extent: Extent) -> None:
        self._types, self._extent = types, extent

    def part(self, tree: Tree, scope: _Scope) -> _Part:
        of_type = self._types[id(tree)]
        match tree:
            case Literal(value):
                return _Part(0, of_type, size=Size(len(value), len(value)) if isinstance(value, str) else ONE)
            case Name(name):
                return self._variable(name, of_type, scope)
            case Items(items):
                return self._list(items, of_type, scope)
            case Select():
                return self._selected(tree, of_type, scope)
            case Index():
                return self._indexed(tree, of_type, scope)
            case Call():
                return self._call(tree, of_type, scope)
            case Entries() | Message():
                raise NotImplementedError("what is estimated has neither maps nor messages that are written out")

    def _settled(self, tree: Tree, scope: _Scope) -> _Part:
        """The part, its size fixed before another part continues from the same path."""
        found = self.part(tree, scope)
        found.size(self._extent)
        return found

    def _variable(self, name: str, of_type: Type, scope: _Scope) -> _Part:
        if name not in scope:
            return _Part(1, of_type, path=path(name))
        return _Part(1, of_type, path=scope[name].path, otherwise=scope[name].size)

    def _list(self, items: Sequence[Tree], of_type: Type, scope: _Scope) -> _Part:
        parts = [self._settled(each, scope) for each in items]
        sizes = [each.size(self._extent) for each in parts]
        count = len(parts)
        cost = _LIST + sum(each.cost for each in parts)
        return _Part(cost, of_type, size=Size(count, count), entry=reduce(Size.either, sizes) if sizes else Size(0, 0))

    def _selected(self, tree: Select, of_type: Type, scope: _Scope) -> _Part:
        target = self.part(tree.target, scope)
        if tree.optional:
            return _Part(1 + target.cost, of_type)
        cost = target.cost + isinstance(target.type, MapOf | ObjectOf)
        return _Part(cost, of_type, path=onward(target.path, tree.name))

    def _indexed(self, tree: Index, of_type: Type, scope: _Scope) -> _Part:
        target, at = self._settled(tree.target, scope), self.part(tree.at, scope)
        cost = 1 + target.cost + at.cost
        if tree.optional or isinstance(target.type, OptionalOf):
            return _Part(cost, of_type)
        step = "@items" if isinstance(target.type, ListOf) else "@values"
        return _Part(cost, of_type, path=onward(target.path, step), size=target.entry)

    def _call(self, tree: Call, of_type: Type, scope: _Scope) -> _Part:
        match tree:
            case Call("has", None, (Select(target=target),)):
                return _Part(self.part(target, scope).cost, of_type)
            case Call("optMap" | "optFlatMap", target, (Name(name), body)) if target is not None:
                return self._of_optional(self.part(target, scope), tree.name == "optFlatMap", name, body, scope)
            case Call("all" | "exists" | "exists_one" | "map" | "filter", target) if target is not None:
                return self._loop(tree, self.part(target, scope), of_type, scope)
        arguments = [self._settled(each, scope) for each in tree.arguments]
        if tree.target is None or id(tree.target) not in self._types:
            return self._applied(tree.name, None, arguments, of_type)
        return self._applied(tree.name, self._settled(tree.target, scope), arguments, of_type)

    # -- macros --------------------------------------------------------------------------------------------------------

    def _loop(self, call: Call, over: _Part, of_type: Type, scope: _Scope) -> _Part:
        assert isinstance(call.arguments[0], Name)
        name, bodies = call.arguments[0].name, call.arguments[1:]
        step, inner = ("@items", over.type.items) if isinstance(over.type, ListOf) else ("@keys", TEXT)
        inside = {**scope, name: _Local(onward(over.path, step), over.entry)}
        parts = [self._settled(each, inside) for each in bodies]
        if call.name == "filter":
            parts.append(self._variable(name, inner, inside))
        entry = Size(0, parts[-1].size(self._extent).most)
        times = over.size(self._extent)
        cost = over.cost + times.most * _each_time(call.name, parts)
        if call.name in ("map", "filter"):
            return _Part(cost + _LIST + 1, of_type, size=times, entry=entry)
        return _Part(cost + (2 if call.name == "exists_one" else 1), of_type, size=ONE)

    def _of_optional(self, target: _Part, flat: bool, name: str, body: Tree, scope: _Scope) -> _Part:
        """The target is evaluated twice: whether it has a value, and which."""
        assert isinstance(target.type, OptionalOf)
        value = _Part(0, target.type.of)
        found = self._settled(body, {**scope, name: _Local(None, value.size(self._extent))})
        of_type = found.type if flat else OptionalOf(found.type)
        nothing = _Part(1, of_type).size(self._extent)
        there = found.size(self._extent) if flat else nothing
        cost = (1 + target.cost) + _LIST + (1 + target.cost) + found.cost + (not flat)
        return _Part(cost, of_type, size=there.either(nothing))

    # -- functions -----------------------------------------------------------------------------------------------------

    def _applied(self, name: str, target: _Part | None, arguments: list[_Part], of_type: Type) -> _Part:
        """Adds a function's own cost to the costs of its arguments."""
        sizes = [each.size(self._extent) for each in arguments]
        given = sum(each.cost for each in arguments)
        if target is not None:
            own, size = self._method(name, target, sizes)
            return _Part(given + target.cost + own, of_type, size=size)
        match name:
            case "&&" | "||":
                return _Part(given, of_type)
            case "?:":
                condition, one, other = arguments
                cost = condition.cost + max(one.cost, other.cost)
                entry = _entry_of_either(one, other)
                return _Part(cost, of_type, size=sizes[1].either(sizes[2]), entry=entry)
            case "+" if len(arguments) == 2 and isinstance(of_type, ListOf):
                return _Part(given + 1, of_type, size=sizes[0].plus(sizes[1]), entry=_entry_of_either(*arguments))
        own, size = _function(name, [each.type for each in arguments], sizes)
        return _Part(given + own, of_type, size=size)

    def _method(self, name: str, target: _Part, sizes: list[Size]) -> tuple[int, Size | None]:
        own = target.size(self._extent)
        match name:
            case "contains":
                return part_of(own.most, _OF_CHARACTER) * part_of(sizes[0].most, _OF_CHARACTER), None
            case "matches":
                read = part_of(own.plus(ONE).most, _OF_CHARACTER)
                return read * part_of(sizes[0].most, _OF_CHARACTER_IN_PATTERN), None
            case "startsWith" | "endsWith":
                return part_of(sizes[0].most, _OF_CHARACTER), None
            case "indexOf" | "lastIndexOf":
                return part_of(own.most, _OF_CHARACTER), None
            case "lowerAscii" | "upperAscii" | "substring":
                return part_of(own.most, _OF_CHARACTER), own
            case "replace":
                return part_of(own.most, 2 * _OF_CHARACTER), _replaced(own, *sizes)
            case "split":
                return part_of(own.most, 2 * _OF_CHARACTER), Size(0, own.most)
            case "join":
                size = self._joined(target, sizes)
                return part_of(size.most, _OF_CHARACTER), size
        return 1, None

    def _joined(self, target: _Part, separators: list[Size]) -> Size:
        count = target.size(self._extent)
        item = self._extent.at(None if target.path is None else target.path.apart("@items")) or UNKNOWN
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        texts = count.times(item)
        return texts.plus(separators[0].times(between)) if separators else texts


def _entry_of_either(one: _Part, other: _Part) -> Size | None:
    return None if one.entry is None or other.entry is None else one.entry.either(other.entry)


def _each_time(macro: str, bodies: list[_Part]) -> int:
    """The cost of one item: the loop condition, and the macro's own work."""
    first = bodies[0].cost
    match macro:
        case "all":
            return 3 + first
        case "exists":
            return 4 + first
        case "exists_one":
            return 2 + first
    added = 2 + _LIST + bodies[-1].cost
    return added if len(bodies) == 1 else first + added


def _function(name: str, types: list[Type], sizes: list[Size]) -> tuple[int, Size | None]:
    """A value of type DYN may be a text, or not."""
    of_text = all(each in (TEXT, DYN) for each in types)
    at_least = 0 if TEXT in types else 1
    match name:
        case "==" | "!=":
            return part_of(min(each.most for each in sizes), _OF_CHARACTER), None
        case "<" | "<=" | ">" | ">=" if of_text:
            return max(at_least, part_of(min(each.most for each in sizes), _OF_CHARACTER)), None
        case "+" if of_text:
            size = sizes[0].plus(sizes[1])
            return max(at_least, part_of(size.most, _OF_CHARACTER)), size
        case "in" if isinstance(types[1], ListOf):
            return sizes[1].most, None
        case "string" if types[0] is DYN:
            return max(1, part_of(sizes[0].most, _OF_CHARACTER)), Size(sizes[0].least // 4, sizes[0].most)
    return 1, None


def _replaced(text: Size, old: Size, new: Size) -> Size:
    """The shortest and longest size of a text in which each `old` becomes `new`."""
    if old.least == 0:
        longest = (text.most + 1) * new.most + text.most
    elif new.most <= old.least:
        longest = text.most
    else:
        longest = math.ceil(text.most / old.least) * new.most
    if old.most == 0:
        shortest = (text.least + 1) * new.least + text.least
    elif old.most <= new.least:
        shortest = text.least
    else:
        shortest = math.ceil(text.least / old.most) * new.least
    return Size(min(shortest, LIMITLESS), min(longest, LIMITLESS))
