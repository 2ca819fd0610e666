"""Schema types: the CEL types that validation rules see of a structural schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubesim.apiserver.cel.types import BOOL, DOUBLE, DYN, INT, OPAQUE, TEXT, TIMESTAMP, ListOf, MapOf, ObjectOf, Type

_RESERVED_WORDS = """
    true false null in as break const continue else for function if import let loop package namespace return
    var void while
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SIMPLE: dict[str, Type] = {"string": TEXT, "boolean": BOOL, "number": DOUBLE, "integer": INT}
_FORMATS: dict[str, Type] = {"date-time": TIMESTAMP, "date": OPAQUE, "duration": OPAQUE, "byte": OPAQUE}
TYPE_AND_METADATA: dict[str, Mapping[str, Any]] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
}


def cel_type(schema: Mapping[str, Any], *, root: bool = False) -> Type | None:
    """The type of values of this schema; None if rules do not see it. `root`: it has a kind.

    Rules do not see a field without a type, such as one with preserved unknown fields.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    of_type = schema.get("type")
    if of_type == "array":
        items = _part(schema.get("items"))
        listed = schema.get("x-kubernetes-list-type") or "atomic"
        return None if items is None else ListOf(items, listed, tuple(schema.get("x-kubernetes-list-map-keys") or ()))
    if of_type == "object":
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            values = _part(others)
            return None if values is None else MapOf(values)
        properties = {**(schema.get("properties") or {}), **(TYPE_AND_METADATA if root else {})}
        fields: dict[str, tuple[str, Type]] = {}
        for name, each in properties.items():
            found, called = _part(each), escaped(name)
            if found is not None and called is not None:
                fields[called] = name, found
                if name in _RESERVED:
                    # After a dot, the reserved word itself is accepted, too.
                    fields.setdefault(name, (name, found))
        return ObjectOf(fields)
    if of_type == "string":
        return _FORMATS.get(schema.get("format") or "", TEXT)
    return _SIMPLE.get(of_type or "")


def escaped(name: str) -> str | None:
    """The name of this field in expressions; None if they cannot use it."""
    if name in _RESERVED:
        return f"__{name}__"
    if not re.fullmatch(r"[A-Za-z_./-][A-Za-z0-9_./-]*", name):
        return None
    return re.sub(r"__|[./-]", lambda found: _ESCAPED[found[0]], name)


def _part(schema: Any) -> Type | None:
    if not isinstance(schema, Mapping):
        return None
    return cel_type(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))
