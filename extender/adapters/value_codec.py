"""Value codec: converts the core's values to JSON and back, by the declared types of their fields.

Decoding creates only instances of the requested type and of the types of its fields, because the input may come from
anywhere. A field with its default value is left out. In a union of dataclasses the name selects one: `{"Short":
{...}}`. A mapping whose keys are not texts is a list of pairs.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from math import inf, isinf
from operator import attrgetter
from typing import Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_To = Callable[[Any], Any]

_ENDLESS = "inf"
"""JSON has no number for infinity."""


class Malformed(ValueError):
    """The input is no value of the type; `str()` says where, and what was expected."""


class Shape(Generic[T]):
    """The codec for values of one type. `kind`: the type, or a union with `|`."""

    def __init__(self, kind: Any) -> None:
        self._to_plain, self._from_plain = _both(kind)

    def to_plain(self, value: T) -> Any:
        return value if self._to_plain is None else self._to_plain(value)

    def from_plain(self, plain: Any) -> T:
        """Raises Malformed."""
        value: T = self._from_plain(plain)
        return value


@cache
def _both(kind: Any) -> tuple[_To | None, _To]:
    """Returns the type's encoder, None if values are plain already, and its decoder."""
    if isinstance(kind, NewType):
        return _both(kind.__supertype__)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _either(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if origin is not None and issubclass(origin, AbstractSet):
        return _set(frozenset if origin is frozenset else set, *arguments)
    if origin is not None and issubclass(origin, Sequence):
        return _many(list, *arguments)
    if kind is float:
        return _float_to_plain, _float
    if kind in (str, int, bool, type(None)):
        return None, _exactly(kind)
    if issubclass(kind, Enum):
        return (lambda value: value.value), _enum(kind)
    if _has_fields(kind):
        return _dataclass(kind)
    raise TypeError(f"no value of {kind} can be written")


# -- single values


def _exactly(kind: type) -> _To:
    def from_plain(plain: Any) -> Any:
        if type(plain) is not kind:
            raise Malformed(f"expected {kind.__name__}, found {plain!r:.80}")
        return plain

    return from_plain


def _float_to_plain(value: float) -> float | str:
    return _ENDLESS if isinf(value) and value > 0 else value


def _float(plain: Any) -> float:
    if plain == _ENDLESS:
        return inf
    if type(plain) not in (float, int):
        raise Malformed(f"expected float, found {plain!r:.80}")
    return float(plain)


def _enum(kind: type[Enum]) -> _To:
    def from_plain(plain: Any) -> Any:
        try:
            return kind(plain)
        except ValueError:
            raise Malformed(f"expected one of {[each.value for each in kind]}, found {plain!r:.80}") from None

    return from_plain


# -- collections


def _list(plain: Any) -> list[Any]:
    if type(plain) is not list:
        raise Malformed(f"expected a list, found {plain!r:.80}")
    return plain


def _many(made: Callable[[Any], Any], kind: Any) -> tuple[_To, _To]:
    to, of = _both(kind)
    plainly: _To = list if to is None else lambda values: [to(each) for each in values]
    return plainly, lambda plain: made([of(each) for each in _list(plain)])


def _set(made: Callable[[Any], Any], kind: Any) -> tuple[_To, _To]:
    """Encodes in an order that does not depend on hashes."""
    to, of = _many(made, kind)
    return (lambda values: sorted(to(values), key=repr)), of


def _tuple(kinds: Sequence[Any]) -> tuple[_To, _To]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return _many(tuple, kinds[0])
    shapes = [Shape[Any](kind) for kind in kinds]

    def from_plain(plain: Any) -> Any:
        if len(_list(plain)) != len(shapes):
            raise Malformed(f"expected {len(shapes)} values, found {plain!r:.80}")
        return tuple(shape.from_plain(each) for shape, each in zip(shapes, plain, strict=True))

    return (lambda value: [shape.to_plain(each) for shape, each in zip(shapes, value, strict=True)]), from_plain


def _mapping(key: Any, value: Any) -> tuple[_To, _To]:
    (key_to, key_of), (to, of) = _both(key), _both(value)
    if key_to is not None:
        pairs, pairs_of = _many(list, tuple[key, value])
        return (lambda mapping: pairs(mapping.items())), lambda plain: dict(pairs_of(plain))

    def from_plain(plain: Any) -> Any:
        if type(plain) is not dict:
            raise Malformed(f"expected a mapping, found {plain!r:.80}")
        return {key_of(name): of(each) for name, each in plain.items()}

    plainly: _To = dict if to is None else lambda mapping: {name: to(each) for name, each in mapping.items()}
    return plainly, from_plain


def _either(kinds: Collection[Any]) -> tuple[_To, _To]:
    """Encodes None and single types as they are, and each of several dataclasses with its name."""
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        to, of = _both(others[0])
        return (lambda value: value if value is None or to is None else to(value)), (
            lambda plain: None if plain is None else of(plain)
        )
    named = {str(kind.__name__): _dataclass(kind) for kind in others if _has_fields(kind)}
    by_type = {_plain_type(kind): _both(kind)[1] for kind in others if not _has_fields(kind)}
    if len(others) < len(kinds):
        by_type[type(None)] = _exactly(type(None))

    def to_plain(value: Any) -> Any:
        name = type(value).__name__
        return {name: named[name][0](value)} if name in named else value

    def from_plain(plain: Any) -> Any:
        if (of := by_type.get(type(plain))) is not None:
            return of(plain)
        if type(plain) is not dict or len(plain) != 1:
            raise Malformed(f"expected one of {sorted(named)}, found {plain!r:.80}")
        [(name, inner)] = plain.items()
        if name not in named:
            raise Malformed(f"expected one of {sorted(named)}, found {name!r:.80}")
        return named[name][1](inner)

    return to_plain, from_plain


def _plain_type(kind: Any) -> type:
    """Returns the type of the JSON value; for types that are neither dataclasses nor unions."""
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    found: type = list if get_origin(kind) is tuple else kind
    return found


# -- dataclasses


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind)


class _Member:
    """One field of a dataclass."""

    __slots__ = ("default", "get", "has_default", "of", "to")

    def __init__(self, field: Field[Any], kind: Any) -> None:
        self.to, self.of = _both(kind)
        self.get = attrgetter(field.name)
        self.has_default = True
        if field.default is not MISSING:
            self.default = field.default
        elif field.default_factory is not MISSING:
            self.default = field.default_factory()
        else:
            self.has_default, self.default = False, MISSING


@cache
def _dataclass(kind: Any) -> tuple[_To, _To]:
    hints = get_type_hints(kind)
    members = {each.name: _Member(each, hints[each.name]) for each in fields(kind) if each.init}
    required = [name for name, member in members.items() if not member.has_default]
    what = [(name, each.get, each.default, each.to) for name, each in members.items()]

    def to_plain(value: Any) -> Any:
        plain = {}
        for name, get, default, to in what:
            own = get(value)
            if own is not default and own != default:
                plain[name] = own if to is None else to(own)
        return plain

    def from_plain(plain: Any) -> Any:
        if type(plain) is not dict:
            raise Malformed(f"expected {kind.__name__}, found {plain!r:.80}")
        given = {}
        for name, inner in plain.items():
            if (member := members.get(name)) is None:
                raise Malformed(f"{kind.__name__} has no field {name!r:.80}")
            try:
                given[name] = member.of(inner)
            except Malformed as error:
                raise Malformed(f"{kind.__name__}.{name}: {error}") from None
        for name in required:
            if name not in given:
                raise Malformed(f"{kind.__name__} has no {name}")
        return kind(**given)

    return to_plain, from_plain
