"""Schema rules: the `x-kubernetes-validations` of a structural schema that an object breaks.

A rule about something that an update leaves as it was is not judged again. Must not know kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from extender.sim.apiserver import cel
from extender.sim.apiserver.failures import Problem, wrong
from extender.sim.apiserver.schema_values import NOTHING, Schema
from extender.sim.kinds import Json

_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)


def broken_rules(schema: Schema, new: Json, old: Json | None, problems: list[Problem]) -> list[Problem]:
    if not _has_rules(schema):
        return []
    if any(each.type in _BLOCKING for each in problems):
        return [Problem("FieldValueInvalid", "<nil>", f"Invalid value: null: {_NOT_CHECKED}")]
    return list(_broken_rules(schema, new, NOTHING if old is None else old, ""))


def not_understood(schema: Any) -> list[str]:
    """What of this schema and those below it cannot be evaluated here: rules and patterns."""
    if not isinstance(schema, Mapping):
        return []
    found: list[str] = []
    if schema.get("pattern"):
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            found.append(f"{schema['pattern']} ({error})")
    for rule in schema.get("x-kubernetes-validations") or ():
        try:
            cel.compiled(rule["rule"])
        except cel.Unsupported as error:
            found.append(f"{rule['rule']} ({error})")
    for part in _parts(schema):
        found += not_understood(part)
    return found


def _parts(schema: Schema) -> list[Any]:
    return [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    return any(_has_rules(part) for part in _parts(schema))


def _broken_rules(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Problem]:
    for rule in schema.get("x-kubernetes-validations") or ():
        yield from _broken_rule(rule, schema, value, old, path)
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for key, each in value.items():
            part = properties.get(key, others)
            if isinstance(part, Mapping):
                where = f"{path}.{key}" if path else key
                if key not in properties:
                    where = f"{path}[{key}]"
                yield from _broken_rules(part, each, before.get(key, NOTHING), where)
    elif isinstance(value, list) and schema.get("items"):
        for at, each in enumerate(value):
            yield from _broken_rules(schema["items"], each, NOTHING, f"{path}[{at}]")


def _broken_rule(rule: Schema, schema: Schema, value: Any, old: Any, path: str) -> Iterator[Problem]:
    text, scope = rule["rule"], {"self": value}
    transition = cel.mentions(text, "oldSelf")
    if transition:
        if rule.get("optionalOldSelf"):
            scope["oldSelf"] = cel.Optional() if old is NOTHING else cel.Optional(old, there=True)
        elif old is NOTHING:
            return
        else:
            scope["oldSelf"] = old
    elif old is not NOTHING and value == old:
        return
    where = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    try:
        if cel.compiled(text)(scope):
            return
    except (cel.Failed, TypeError, ValueError) as error:
        yield _said(path or "<nil>", value, f"{error} evaluating rule: {rule.get('message') or text}")
        return
    said = rule.get("message") or f"failed rule: {text.strip()}"
    if rule.get("messageExpression"):
        with suppress(cel.Failed, cel.Unsupported, TypeError, ValueError):
            said = str(cel.compiled(rule["messageExpression"])(scope))
    yield _said(where, value, said)


def _said(where: str, value: Any, why: str) -> Problem:
    """Of objects and lists the message does not show the value."""
    if isinstance(value, dict | list):
        return Problem("FieldValueInvalid", where, f"Invalid value: {why}")
    return wrong(where, value, why)
