"""Types: what an expression can be, and which types may stand for each other."""

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
    """`listed`: how Kubernetes compares it: atomic, set (in any order), or map (in any order, by `keys`)."""

    items: Type
    listed: str = "atomic"
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"list({self.items})"


@dataclass(frozen=True)
class MapOf:
    """Keys are always text."""

    values: Type

    def __str__(self) -> str:
        return f"map(string, {self.values})"


@dataclass(frozen=True, eq=False)
class ObjectOf:
    """Fields by the name that expressions use: what the field is called in JSON, and its type.

    One object is another type than a second one with the same fields.
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
    """A message that an expression has written out, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


Type = Simple | ListOf | MapOf | ObjectOf | OptionalOf | MessageOf

BOOL, INT, DOUBLE, TEXT, NULL = Simple("bool"), Simple("int"), Simple("double"), Simple("string"), Simple("null_type")
TIMESTAMP = Simple("timestamp")
TYPE = Simple("type")
DYN = Simple("dyn")
"""Known when it runs: a whole number or a text."""
UNBOUND = Simple("dyn")
"""What an empty list or map has none of: with anything else it is as that is."""
ANY = Simple("any")
"""Whatever JSON there is: a field of a message may be of this type."""
OPAQUE = Simple("a value that is not in the embedded cluster")
"""A value of a type that is not known here: it can be there or not, and nothing else be said of it."""


def joined(one: Type, other: Type) -> Type | None:
    """What both of them are; None if there is nothing."""
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
    """What a variable or an item can be of which this is the type: of an empty list's items nothing is known."""
    return DYN if of_type is UNBOUND else of_type


def comparable(one: Type, other: Type) -> bool:
    """Whether `==` is allowed between them."""
    if NULL in (one, other):
        return one == other or DYN in (one, other) or any(isinstance(each, ObjectOf) for each in (one, other))
    return joined(one, other) is not None


def has_opaque(of_type: Type) -> bool:
    """Whether something of it is not known here, so that two of them cannot be compared."""
    match of_type:
        case ListOf(items=inner) | MapOf(values=inner) | OptionalOf(of=inner):
            return has_opaque(inner)
        case ObjectOf():
            return any(has_opaque(inner) for _, inner in of_type.fields.values())
    return of_type is OPAQUE
