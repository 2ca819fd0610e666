"""Messages: maps and messages that an expression writes, as JSON; the caller defines messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubesim.apiserver.cel import types
from kubesim.apiserver.cel.parts import no_overload
from kubesim.apiserver.cel.running import Scope, Typed
from kubesim.apiserver.cel.syntax import Name, Refused, Tree, not_here
from kubesim.apiserver.cel.types import (
    ANY,
    DYN,
    INT,
    TEXT,
    UNBOUND,
    ListOf,
    MapOf,
    MessageOf,
    ObjectOf,
    OptionalOf,
    Type,
)
from kubesim.apiserver.cel.values import Failed

Known = Callable[[str], Mapping[str, tuple[str, Type]] | None]
"""The fields of a named message, as in ObjectOf; None if it is unknown.

If a field is an object, or a list of objects, its message is named after this one, a dot, and the field.
"""


@dataclass(frozen=True)
class Given:
    """The value of an entry. `optional`: without a value, the entry is left out."""

    value: Typed
    optional: bool

    @property
    def type(self) -> Type:
        """Raises Refused."""
        if not self.optional:
            return self.value.type
        if not isinstance(self.value.type, OptionalOf):
            raise Refused(f"expected type 'optional_type({self.value.type})' but found '{self.value.type}'")
        return self.value.type.of

    def into(self, made: dict[str, Any], key: str, scope: Scope) -> None:
        value = self.value.run(scope)
        if self.optional:
            if not value.there:
                return
            value = value.value
        made[key] = value


def mapped(entries: Sequence[tuple[Typed, Given]]) -> Typed:
    """A map. Raises Refused."""
    inner: Type = UNBOUND
    for key, given in entries:
        if key.type != TEXT:
            raise not_here(f"a map with keys of type {key.type}")
        both = types.joined(inner, given.type)
        if both is None or (both is DYN and DYN not in (inner, given.type)):
            raise Refused(f"expected type '{inner}' but found '{given.type}'")
        inner = both

    def run(scope: Scope) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, given in entries:
            name = key.run(scope)
            if name in made:
                raise Failed(f"Failed with repeated key: {name}")
            given.into(made, name, scope)
        return made

    return Typed(MapOf(inner), run)


def made(known: Known, name: str, entries: Sequence[tuple[Tree, Given]]) -> Typed:
    """A message. Raises Refused."""
    fields = known(name)
    if fields is None:
        raise Refused(f"undeclared reference to '{name}'")
    runs: list[tuple[str, Given]] = []
    for key, given in entries:
        assert isinstance(key, Name)
        if key.name not in fields:
            raise Refused(f"undefined field '{key.name}' of {name}")
        written, wanted = fields[key.name]
        if any(written == other for other, _ in runs):
            raise Refused(f"the field '{key.name}' of {name} is given twice")
        if wanted is types.OPAQUE or (wanted is not ANY and types.has_opaque(given.type)):
            raise not_here(f"{name}.{key.name} with values of which nothing is known")
        if not _fits(given.type, wanted, f"{name}.{key.name}"):
            said = f"expected type of field '{key.name}' of {name} is '{wanted}'"
            raise Refused(f"{said} but provided type is '{given.type}'")
        runs.append((written, given))

    def run(scope: Scope) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for written, given in runs:
            given.into(result, written, scope)
        return result

    return Typed(MessageOf(name), run)


def _fits(found: Type, wanted: Type, name: str) -> bool:
    """Whether a value fits `wanted`. `name`: of the message that fits an object."""
    if found is UNBOUND:
        return True
    if wanted is ANY:
        return _written_as_json(found)
    match found, wanted:
        case MessageOf(), ObjectOf():
            return found.name == name
        case ListOf(), ListOf():
            return _fits(found.items, wanted.items, name)
        case MapOf(), MapOf():
            return _fits(found.values, wanted.values, name)
    if DYN in (found, wanted):
        # `found` may be an item of an empty list, or an int-or-string.
        return {found, wanted} <= {DYN, INT, TEXT}
    return found == wanted


def _written_as_json(found: Type) -> bool:
    match found:
        case ListOf(items=inner) | MapOf(values=inner):
            return _written_as_json(inner)
        case OptionalOf():
            return False
    return found not in (types.TIMESTAMP, types.TYPE)


def of_json_patch(name: str, given: list[Typed]) -> Typed:
    """A function of `jsonpatch`. Raises Refused."""
    if name != "escapeKey":
        raise Refused(f"undeclared reference to 'jsonpatch.{name}'")
    if [each.type for each in given] not in ([TEXT], [DYN]):
        raise no_overload("jsonpatch.escapeKey", given)
    [key] = given

    def run(scope: Scope) -> str:
        text = key.run(scope)
        if not isinstance(text, str):
            raise Failed("no such overload")
        return text.replace("~", "~0").replace("/", "~1")

    return Typed(TEXT, run)
