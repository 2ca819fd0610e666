"""Schema extents: the largest sizes of a schema's values, as kube-apiserver estimates them.

Where a schema names no limit, the largest request is the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesim.apiserver.cel import Extent
from kubesim.apiserver.schemas.schema_types import TYPE_AND_METADATA, escaped

LARGEST_REQUEST = 3 * 1024 * 1024
_TEXT_IN_REQUEST = LARGEST_REQUEST - 2
_FORMATS = {"duration": Extent(32, 3), "date": Extent(12, 12), "date-time": Extent(32, 21)}
_SIMPLE = {"boolean": Extent(0, 4), "number": Extent(0, 1), "integer": Extent(0, 1)}
_KEYS = Extent(0, 2)
_BYTES_OF_CHARACTER = 4
_EMPTY = 2
"""The size in bytes of an empty list, object or text."""


def extent(schema: Mapping[str, Any], *, root: bool = False) -> Extent | None:
    """The extent of a value; None where rules do not see the value, as in `cel_type`."""
    if schema.get("x-kubernetes-int-or-string"):
        return Extent(_longest(schema), 1)
    match schema.get("type"):
        case "array":
            return _of_list(schema)
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return _of_map(schema)
        case "object":
            return _of_object(schema, root=root)
        case "string":
            return _FORMATS.get(schema.get("format") or "") or Extent(_longest(schema), _EMPTY)
        case of_type:
            return _SIMPLE.get(of_type or "")


def most_elements(schema: Mapping[str, Any]) -> int | None:
    """How often a part can occur in one value of the schema; None if unlimited."""
    match schema.get("type"):
        case "array":
            return _limit(schema, "maxItems")
        case "object" if schema.get("additionalProperties") is not None:
            return _limit(schema, "maxProperties")
    return 1


def most_in_request(of: Extent) -> int:
    """How often a value of this extent fits into a request."""
    return LARGEST_REQUEST // (of.least + 1)


def _of_list(schema: Mapping[str, Any]) -> Extent | None:
    items = _part(schema.get("items"))
    if items is None:
        return None
    limit = _limit(schema, "maxItems")
    return Extent((LARGEST_REQUEST - 2) // (items.least + 1) if limit is None else limit, _EMPTY, items=items)


def _of_map(schema: Mapping[str, Any]) -> Extent | None:
    values = _part(schema["additionalProperties"])
    if values is None:
        return None
    limit = _limit(schema, "maxProperties")
    most = (LARGEST_REQUEST - 2) // (values.least + 6) if limit is None else limit
    return Extent(most, _EMPTY, items=values, keys=_KEYS)


def _of_object(schema: Mapping[str, Any], *, root: bool) -> Extent:
    required = schema.get("required") or ()
    fields: dict[str, Extent] = {}
    least = _EMPTY
    for name, part in {**(schema.get("properties") or {}), **(TYPE_AND_METADATA if root else {})}.items():
        found, called = _part(part), escaped(name)
        if found is None:
            continue
        if called is not None:
            fields[called] = found
        if name in required and part.get("default") is None:
            least += len(name.encode()) + found.least + 4
    return Extent(0, least, fields)


def _longest(schema: Mapping[str, Any]) -> int:
    """The largest size of a text, in bytes."""
    if (limit := _limit(schema, "maxLength")) is not None:
        return limit if schema.get("format") == "byte" else limit * _BYTES_OF_CHARACTER
    if schema.get("enum") and not schema.get("x-kubernetes-int-or-string") and schema.get("format") != "byte":
        return max((len(each.encode()) for each in schema["enum"] if isinstance(each, str)), default=0)
    return _TEXT_IN_REQUEST


def _limit(schema: Mapping[str, Any], name: str) -> int | None:
    found = schema.get(name)
    return max(int(found), 0) if isinstance(found, int | float) else None


def _part(schema: Any) -> Extent | None:
    if not isinstance(schema, Mapping):
        return None
    return extent(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))
