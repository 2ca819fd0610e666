"""Policy expressions: types and compilation of the CEL in a MutatingAdmissionPolicy.

kube-apiserver checks the fields of a pod only when an expression runs. Here `shapes` gives them at compile time, so an
expression that could never have a value is Refused at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kubesim import kinds
from kubesim.apiserver import cel
from kubesim.apiserver.cel import types
from kubesim.apiserver.cel.syntax import not_here
from kubesim.apiserver.cel.types import ListOf, MapOf, MessageOf, ObjectOf, Type
from kubesim.apiserver.representation import shapes
from kubesim.apiserver.representation.shapes import Each, Map, Shape

CONDITION: Type = types.BOOL
APPLIED: Type = MessageOf("Object")
PATCH: Type = ListOf(MessageOf("JSONPatch"))
"""The types of match conditions, of apply configurations, and of JSON patches."""

_SIMPLE: Mapping[str, Type] = {
    shapes.TEXT: types.TEXT,
    shapes.TIME: types.TEXT,
    shapes.AMOUNT: types.TEXT,
    shapes.BOOL: types.BOOL,
    shapes.NUMBER: types.INT,
    shapes.NUMBER_OR_TEXT: types.DYN,
    shapes.ANY: types.OPAQUE,
}
_NOT_HERE = ("oldObject", "request", "params", "namespaceObject", "variables", "authorizer")
"""Variables that expressions have in kube-apiserver but not here."""
_JSON_PATCH: Mapping[str, tuple[str, Type]] = {
    **{name: (name, types.TEXT) for name in ("op", "path", "from")},
    "value": ("value", types.ANY),
}


def _of_shape(shape: Shape, known: dict[int, Type]) -> Type:
    """The CEL type of a shape. `known`: types by shape identity; equal shapes share a type."""
    match shape:
        case shapes.Object(fields=fields):
            if id(shape) not in known:
                known[id(shape)] = ObjectOf({name: (name, _of_shape(each, known)) for name, each in fields.items()})
            return known[id(shape)]
        case Each(of):
            return ListOf(_of_shape(of, known))
        case Map(of):
            return types.OPAQUE if of == shapes.ANY else MapOf(_of_shape(of, known))
    return _SIMPLE[str(shape)]


_POD = _of_shape(shapes.of_kind(kinds.POD), {})


def _message(name: str) -> Mapping[str, tuple[str, Type]] | None:
    """The fields of JSONPatch, or of `Object.<path>`, a part of a pod; a list means its items."""
    if name == "JSONPatch":
        return _JSON_PATCH
    root, *path = name.split(".")
    found: Type | None = _POD if root == "Object" else None
    for part in path:
        found = found.fields[part][1] if isinstance(found, ObjectOf) and part in found.fields else None
        while isinstance(found, ListOf):
            found = found.items
    return found.fields if isinstance(found, ObjectOf) else None


@lru_cache(maxsize=256)
def ready(text: str, wanted: Type) -> cel.Program:
    """A program with a value of this type, cached because each pod needs it. Raises Refused."""
    program = cel.compiled(text, {"object": _POD, **dict.fromkeys(_NOT_HERE, types.OPAQUE)}, _message)
    for name in _NOT_HERE:
        if name in program.uses:
            raise not_here(f"the variable {name}")
    if program.type != wanted and types.joined(program.type, wanted) != wanted:
        raise cel.Refused(f"must evaluate to {wanted}")
    return program
