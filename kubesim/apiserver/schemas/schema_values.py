"""Schema values: finds errors of a value against a structural schema, in kube-apiserver's words.

Unchanged parts of an update are not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kubesim.apiserver.cel.functions import matches
from kubesim.apiserver.machinery.failures import (
    Problem,
    duplicate,
    missing,
    too_long,
    too_many,
    unsupported,
    wrong,
    wrong_type,
)
from kubesim.kinds import Json

Schema = Mapping[str, Any]

NOTHING = object()
"""Marks a missing value."""

LARGEST = 2**63
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def value_problems(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Problem]:
    """The errors of the value, unless it equals the old one."""
    if value is old or (old is not NOTHING and value == old):
        return
    wanted = schema.get("type") or ("integer,string" if schema.get("x-kubernetes-int-or-string") else "")
    where = path or "<nil>"
    if value is None:
        if wanted and not schema.get("nullable"):
            yield wrong_type(where, "null", f'{path} in body must be of type {wanted}: "null"')
        return
    found = _type_of(value)
    if wanted and found not in wanted.split(",") and not (found == "integer" and wanted == "number"):
        shown = path
        if found == "number" and schema.get("format") in ("int32", "int64"):
            yield wrong_type(where, "float64", f'{shown} in body must be of type {schema["format"]}: "float64"')
            why = f"Checked value must be of type integer with format {schema['format']} in {shown}"
            yield Problem("FieldValueInvalid", "<nil>", f'Invalid value: "": {why}')
            return
        yield wrong_type(where, found, f'{shown} in body must be of type {wanted}: "{found}"')
        yield from _combined_problems(schema, value, path)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(where, value, [each if isinstance(each, str) else str(each) for each in schema["enum"]])
    match value:
        case str():
            yield from _text_problems(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number_problems(schema, value, path)
        case list():
            yield from _list_problems(schema, value, old, path)
        case dict():
            yield from _object_problems(schema, value, old, path)
    yield from _combined_problems(schema, value, path)


def _text_problems(schema: Schema, value: str, path: str) -> Iterator[Problem]:
    if schema.get("maxLength") is not None and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    elif schema.get("minLength") is not None and len(value) < schema["minLength"]:
        yield wrong(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    elif schema.get("pattern") and not matches(value, schema["pattern"]):
        yield wrong(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") in ("date-time", "datetime") and not _is_date_time(value):
        yield wrong_type(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text[:19].upper())
    except ValueError:
        return False
    return True


def _number_problems(schema: Schema, value: float, path: str) -> Iterator[Problem]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        words = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield wrong(path, value, f"{path} in body should be {words} {_number(least)}")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        words = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield wrong(path, value, f"{path} in body should be {words} {_number(most)}")
    if schema.get("multipleOf") and value % schema["multipleOf"]:
        yield wrong(path, value, f"{path} in body should be a multiple of {_number(schema['multipleOf'])}")
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield wrong_type(path, value, f'{path} in body must be of type int32: "int64"')


def _number(value: float) -> str:
    """The number as Go's %v writes a float64: with an exponent from 1e+21 on."""
    if abs(value) < 1e21:
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{value:e}"


def _list_problems(schema: Schema, value: list[Any], old: Any, path: str) -> Iterator[Problem]:
    if schema.get("maxItems") is not None and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
    if schema.get("minItems") is not None and len(value) < schema["minItems"]:
        yield wrong(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    before = old if isinstance(old, list) and kind == "map" else []
    for at, each in enumerate(value):
        identity = each
        if kind == "map" and isinstance(each, dict):
            identity = {key: each.get(key) for key in keys}
        if kind in ("map", "set"):
            if identity in seen:
                yield duplicate(f"{path}[{at}]", identity)
            seen.append(identity)
        former = next(
            (one for one in before if isinstance(one, dict) and {key: one.get(key) for key in keys} == identity),
            NOTHING,
        )
        yield from value_problems(schema.get("items") or {}, each, former, f"{path}[{at}]")


def _object_problems(schema: Schema, value: Json, old: Any, path: str) -> Iterator[Problem]:
    if schema.get("maxProperties") is not None and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    if schema.get("minProperties") is not None and len(value) < schema["minProperties"]:
        yield wrong(path, len(value), f"{path} in body should have at least {schema['minProperties']} properties")
    properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key, each in value.items():
        where = f"{path}.{key}" if path else key
        if key in properties:
            yield from value_problems(properties[key], each, before.get(key, NOTHING), where)
        elif isinstance(others, Mapping):
            yield from value_problems(others, each, before.get(key, NOTHING), where)
    for key in schema.get("required") or ():
        if key not in value:
            yield missing(f"{path}.{key}" if path else key)


def _combined_problems(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    where = path or "<nil>"
    for part in schema.get("allOf") or ():
        yield from value_problems(part, value, NOTHING, path)
    if schema.get("anyOf"):
        results = [list(value_problems(part, value, NOTHING, path)) for part in schema["anyOf"]]
        if all(results):
            yield Problem(
                "FieldValueInvalid", "<nil>", f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'
            )
            yield from min(results, key=len)
    if schema.get("oneOf"):
        passing = sum(not list(value_problems(part, value, NOTHING, path)) for part in schema["oneOf"])
        if passing != 1:
            tail = "Found none valid" if not passing else f"Found {passing} valid alternatives"
            why = f'"{path}" must validate one and only one schema (oneOf). {tail}'
            yield Problem("FieldValueInvalid", "<nil>", f'Invalid value: "": {why}')
    if schema.get("not") and not list(value_problems(schema["not"], value, NOTHING, path)):
        yield Problem("FieldValueInvalid", "<nil>", f'Invalid value: "": "{where}" must not validate the schema (not)')


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer" if -LARGEST <= value < LARGEST else "number"
        case float():
            return "integer" if value.is_integer() and abs(value) < LARGEST else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
