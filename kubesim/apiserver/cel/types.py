"""Types: the types of expressions, and which types fit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Simple:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ListOf:
    """`listed`: Kubernetes compares it as atomic, or in any order as set or map (by `keys`)."""

    items: Type
    listed: str = "atomic"
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"list({self.items})"


@dataclass(frozen=True)
class MapOf:
    """A map; its keys are always texts."""

    values: Type

    def __str__(self) -> str:
        return f"map(string, {self.values})"


@dataclass(frozen=True, eq=False)
class ObjectOf:
    """Fields by their name in expressions: the name in JSON, and the type.

    Two objects are different types, even with equal fields.
    """

    fields: Mapping[str, tuple[str, Type]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "object"


@dataclass(frozen=True)
class OptionalOf:
    of: Type

    def __str__(self) -> str:
        return f"optional_type({self.of})"


@dataclass(frozen=True)
class MessageOf:
    """A message literal, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


Type = Simple | ListOf | MapOf | ObjectOf | OptionalOf | MessageOf

BOOL, INT, DOUBLE, TEXT, NULL = Simple("bool"), Simple("int"), Simple("double"), Simple("string"), Simple("null_type")
TIMESTAMP = Simple("timestamp")
TYPE = Simple("type")
DYN = Simple("dyn")
"""A type known only at run time: an integer or a text."""
UNBOUND = Simple("dyn")
"""The type of an empty list's or map's elements; it fits every type."""
ANY = Simple("any")
"""Any JSON value; a field of a message may have this type."""
OPAQUE = Simple("a value that is not in the embedded cluster")
"""A type that is not supported here: expressions can only test whether the value exists."""


def joined(one: Type, other: Type) -> Type | None:
    """The common type of both; None if they have none."""
    if one is UNBOUND or other is UNBOUND:
        return other if one is UNBOUND else one
    if one is DYN or other is DYN:
        return DYN
    if one == other:
        return one
    match one, other:
        case ListOf(), ListOf():
            inner = joined(one.items, other.items)
            if inner is None:
                return None
            same = (one.listed, one.keys) == (other.listed, other.keys)
            return ListOf(inner, one.listed, one.keys) if same else ListOf(inner)
        case MapOf(), MapOf():
            inner = joined(one.values, other.values)
            return None if inner is None else MapOf(inner)
        case OptionalOf(), OptionalOf():
            inner = joined(one.of, other.of)
            return None if inner is None else OptionalOf(inner)
    return None


def known(of_type: Type) -> Type:
    """The type of a variable or item: DYN for the items of an empty list."""
    return DYN if of_type is UNBOUND else of_type


def comparable(one: Type, other: Type) -> bool:
    """Whether `==` is allowed between them."""
    if NULL in (one, other):
        return one == other or DYN in (one, other) or any(isinstance(each, ObjectOf) for each in (one, other))
    return joined(one, other) is not None


def has_opaque(of_type: Type) -> bool:
    """Whether a part has an unsupported type, so that values cannot be compared."""
    match of_type:
        case ListOf(items=inner) | MapOf(values=inner) | OptionalOf(of=inner):
            return has_opaque(inner)
        case ObjectOf():
            return any(has_opaque(inner) for _, inner in of_type.fields.values())
    return of_type is OPAQUE
