"""Policy expressions: what the CEL of a MutatingAdmissionPolicy may be about and write out, and how it is made ready.

kube-apiserver learns only when an expression runs which fields a pod has; here that is known when it is compiled, from
`shapes`. So what could never have a value there is Refused here. Must not know policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kubesim import kinds
from kubesim.apiserver import cel, shapes
from kubesim.apiserver.cel import types
from kubesim.apiserver.cel.syntax import not_here
from kubesim.apiserver.cel.types import ListOf, MapOf, MessageOf, ObjectOf, Type
from kubesim.apiserver.shapes import Each, Map, Shape

CONDITION: Type = types.BOOL
APPLIED: Type = MessageOf("Object")
PATCH: Type = ListOf(MessageOf("JSONPatch"))
"""What the expressions of match conditions, of apply configurations, and of JSON patches are."""

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
"""Variables that expressions have in kube-apiserver."""
_JSON_PATCH: Mapping[str, tuple[str, Type]] = {
    **{name: (name, types.TEXT) for name in ("op", "path", "from")},
    "value": ("value", types.ANY),
}


def _of_shape(shape: Shape, known: dict[int, Type]) -> Type:
    """`known`: objects by identity, for a pod's containers are of the same type wherever they are."""
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
    """JSONPatch, or `Object` and behind it the path of a part of a pod, where lists are as their items."""
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
    """The program, whose value is of this type. Remembered: each pod asks for the same few. Raises Refused."""
    program = cel.compiled(text, {"object": _POD, **dict.fromkeys(_NOT_HERE, types.OPAQUE)}, _message)
    for name in _NOT_HERE:
        if name in program.uses:
            raise not_here(f"the variable {name}")
    if program.type != wanted and types.joined(program.type, wanted) != wanted:
        raise cel.Refused(f"must evaluate to {wanted}")
    return program
