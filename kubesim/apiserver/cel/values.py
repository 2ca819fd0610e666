"""Values: reads values from JSON, compares them, and reports failures.

A value is the Python value of JSON, or an Instant, a ValueKind or an Optional.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from kubesim.apiserver.cel.types import BOOL, DOUBLE, DYN, INT, NULL, TEXT, TIMESTAMP, ListOf, MapOf, ObjectOf, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))")


class Failed(Exception):
    """The expression has no value, for example because it names a missing field."""


class Optional:
    """A value that may be missing."""

    def __init__(self, value: Any = None, *, there: bool = False) -> None:
        self.value, self.there = value, there


@dataclass(frozen=True, order=True)
class Instant:
    """A point in time."""

    nanoseconds: int


@dataclass(frozen=True)
class ValueKind:
    """The type of a value, as a value."""

    name: str


def instant(text: str) -> Instant:
    """The time of a text in RFC 3339. Raises Failed."""
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day, time, fraction, sign, hours, minutes = found.groups()
        away = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        if away >= timedelta(days=1) or int(minutes or 0) > 59:
            raise ValueError
        zone = timezone(-away if sign == "-" else away)
        seconds = (datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=zone) - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        raise Failed(f"invalid timestamp {text!r}") from None
    return Instant(seconds * 10**9 + int((fraction or "").ljust(9, "0")))


def type_of(value: Any) -> Type | None:
    """The run-time type of a simple value; None for lists, maps and others."""
    match value:
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return DOUBLE
        case str():
            return TEXT
        case None:
            return NULL
        case Instant():
            return TIMESTAMP
    return None


_IN_PYTHON: dict[Type, tuple[type, ...]] = {BOOL: (bool,), INT: (int,), DOUBLE: (float, int), TEXT: (str,)}


def reader(of_type: Type) -> Callable[[Any], Any]:
    """A function that reads JSON as a value of this type. It raises Failed for another type."""

    def wrong(value: Any) -> Failed:
        return Failed(f"invalid data, expected {of_type}, got {type(value).__name__}")

    if of_type is TIMESTAMP:
        return lambda value: instant(value) if isinstance(value, str) else value
    if of_type is DOUBLE:

        def read_double(value: Any) -> Any:
            if value is not None and (isinstance(value, bool) or not isinstance(value, float | int)):
                raise wrong(value)
            return None if value is None else float(value)

        return read_double
    wanted: tuple[type, ...]
    match of_type:
        case ListOf():
            wanted = (list,)
        case MapOf() | ObjectOf():
            wanted = (dict,)
        case _:
            wanted = _IN_PYTHON.get(of_type, ())
    if not wanted:
        return lambda value: value

    def read(value: Any) -> Any:
        if value is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
            raise wrong(value)
        return value

    return read


def equality(of_type: Type) -> Callable[[Any, Any], bool]:
    """Compares values of this type: numbers by value, set and map lists in any order."""
    match of_type:
        case ListOf():
            return _equal_lists(of_type)
        case MapOf():
            inner = _equal_read(of_type.values)
            return lambda one, other: _equal_dicts(one, other, lambda key: inner)
        case ObjectOf():
            fields: dict[str, Callable[[Any, Any], bool]] = {}
            known = dict(of_type.fields.values())

            def of_field(key: str) -> Callable[[Any, Any], bool]:
                if key not in fields:
                    fields[key] = _equal_read(known[key]) if key in known else equal
                return fields[key]

            return lambda one, other: _equal_dicts(one, other, of_field)
    return equal


def equal(one: Any, other: Any) -> bool:
    """Compares values by their JSON types. True is not 1, and a list equals only a list."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return _equal_dicts(one, other, lambda key: equal)
    if isinstance(one, Optional) and isinstance(other, Optional):
        return one.there == other.there and (not one.there or equal(one.value, other.value))
    return bool(one == other)


def _equal_read(of_type: Type) -> Callable[[Any, Any], bool]:
    read, same = reader(of_type), equality(of_type)
    if of_type is DYN:
        return equal
    return lambda one, other: same(read(one), read(other))


def _equal_dicts(one: Any, other: Any, of_key: Callable[[str], Callable[[Any, Any], bool]]) -> bool:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one is other
    return one.keys() == other.keys() and all(of_key(key)(value, other[key]) for key, value in one.items())


def _equal_lists(of_type: ListOf) -> Callable[[Any, Any], bool]:
    same = _equal_read(of_type.items)

    def in_order(one: list[Any], other: list[Any]) -> bool:
        return len(one) == len(other) and all(map(same, one, other))

    def as_set(one: list[Any], other: list[Any]) -> bool:
        return len(one) == len(other) and all(any(same(each, its) for its in other) for each in one)

    def by_keys(one: list[Any], other: list[Any]) -> bool:
        def key(item: Any) -> tuple[str, ...]:
            return tuple(repr(item.get(name)) for name in of_type.keys)

        if len(one) != len(other) or not all(isinstance(each, dict) for each in (*one, *other)):
            return False
        found = {key(item): item for item in other}
        return all(key(item) in found and same(item, found[key(item)]) for item in one)

    compare = {"set": as_set, "map": by_keys}.get(of_type.listed, in_order)

    def lists(one: Any, other: Any) -> bool:
        return compare(one, other) if isinstance(one, list) and isinstance(other, list) else one is other

    return lists
