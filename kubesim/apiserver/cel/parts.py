"""Parts: fields, items and optionals, whose types come from the value that contains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubesim.apiserver.cel import types
from kubesim.apiserver.cel.running import Run, Scope, Typed
from kubesim.apiserver.cel.syntax import Refused, not_here
from kubesim.apiserver.cel.types import BOOL, DYN, INT, NULL, TEXT, ListOf, MapOf, ObjectOf, OptionalOf, Type
from kubesim.apiserver.cel.values import Failed, Optional, reader

_NAMES_OF_OPERATORS = {"-_": "-_", "!_": "!_", "?:": "_?_:_", "in": "@in"}


def no_overload(name: str, given: list[Typed]) -> Refused:
    shown = _NAMES_OF_OPERATORS.get(name) or (name if name[0].isalpha() or name[0] == "_" else f"_{name}_")
    said = ", ".join(str(each.type) for each in given)
    return Refused(f"found no matching overload for '{shown}' applied to '({said})'")


def part(of_type: Type, name: str) -> tuple[str, Type]:
    """The field's name in JSON, and its type. Raises Refused."""
    match of_type:
        case ObjectOf():
            if name not in of_type.fields:
                raise Refused(f"undefined field '{name}'")
            return of_type.fields[name]
        case MapOf():
            return name, of_type.values
    raise Refused(f"type '{of_type}' does not support field selection")


def mapping(value: Any, key: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Failed(f"no such key: {key}")
    return value


def field(target: Typed, name: str, *, optional: bool) -> Typed:
    if optional or isinstance(target.type, OptionalOf):
        inner = target.type.of if isinstance(target.type, OptionalOf) else target.type
        key, found = part(inner, name)
        return perhaps(target, lambda scope: key, found)
    key, found = part(target.type, name)
    read, there = reader(found), presence(target.type)

    def run(scope: Scope) -> Any:
        value = target.run(scope)
        if not there(value, key):
            raise Failed(f"no such key: {key}")
        return read(value[key])

    return Typed(found, run)


def presence(of_type: Type) -> Callable[[Any, Any], bool]:
    """Whether a key has a value. Null counts as missing in an object, but not in a map."""
    if isinstance(of_type, ObjectOf):
        return lambda value, key: mapping(value, key).get(key) is not None
    return lambda value, key: key in mapping(value, key)


def perhaps(target: Typed, key: Run, found: Type) -> Typed:
    """An optional with the part at the key, if it exists; an empty target gives an empty one."""
    of_type, of_optional = target.type, isinstance(target.type, OptionalOf)
    read, there = reader(found), presence(of_type.of if isinstance(of_type, OptionalOf) else of_type)

    def run(scope: Scope) -> Optional:
        value = target.run(scope)
        if of_optional:
            if not value.there:
                return Optional()
            value = value.value
        at = key(scope)
        known = at in range(len(value)) if isinstance(value, list) else there(value, at)
        return Optional(read(value[at]), there=True) if known else Optional()

    return Typed(OptionalOf(found), run)


def indexed(target: Typed, at: Typed, *, optional: bool) -> Typed:
    of_type = target.type.of if isinstance(target.type, OptionalOf) else target.type
    match of_type:
        case ListOf(items=found) if at.type == INT:
            pass
        case MapOf(values=found) if at.type == TEXT:
            pass
        case _ if NULL in (of_type, at.type):
            raise not_here("an item of null")
        case _:
            raise no_overload("_[_]", [target, at])
    found = types.known(found)
    if optional or of_type is not target.type:
        return perhaps(target, at.run, found)
    read = reader(found)

    def run(scope: Scope) -> Any:
        value, position = target.run(scope), at.run(scope)
        if isinstance(value, list):
            if position is None or not 0 <= position < len(value):
                raise Failed(f"index out of bounds: {position}")
        elif position not in mapping(value, position):
            raise Failed(f"no such key: {position}")
        return read(value[position])

    return Typed(found, run)


def optional_made(name: str, given: list[Typed]) -> Typed:
    match name, given:
        case "none", []:
            return Typed(OptionalOf(DYN), lambda scope: Optional())
        case "of", [value]:
            return Typed(OptionalOf(value.type), lambda scope: Optional(value.run(scope), there=True))
    raise not_here(f"the function optional.{name}")


def of_optional(name: str, target: Typed, arguments: list[Typed]) -> Typed:
    assert isinstance(target.type, OptionalOf)
    inner = target.type.of
    match name, arguments:
        case "hasValue", []:
            return Typed(BOOL, lambda scope: target.run(scope).there)
        case "value", []:

            def run(scope: Scope) -> Any:
                found = target.run(scope)
                if not found.there:
                    raise Failed("optional.none() dereference")
                return found.value

            return Typed(inner, run)
        case "orValue", [other]:
            both = types.joined(inner, other.type)
            if both is None:
                raise no_overload("orValue", [target, other])
            return Typed(both, lambda scope: one.value if (one := target.run(scope)).there else other.run(scope))
        case "or", [other]:
            both = types.joined(target.type, other.type)
            if both is None:
                raise no_overload("or", [target, other])
            return Typed(both, lambda scope: one if (one := target.run(scope)).there else other.run(scope))
    raise not_here(f"the function {name} of optionals")
