"""Schema: applies a structural schema to a custom resource: defaults, pruning and validation.

It covers OpenAPI v3 as in CustomResourceDefinitions, with CEL rules, in kube-apiserver's words. An update's unchanged
parts are not checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from kubesim.apiserver.machinery.failures import Problem
from kubesim.apiserver.schemas.schema_rules import Rules, broken_rules, ready
from kubesim.apiserver.schemas.schema_values import LARGEST, NOTHING, Schema, value_problems
from kubesim.kinds import Json, Kind

_RULES: WeakKeyDictionary[Kind, Rules] = WeakKeyDictionary()
"""The compiled rules of each kind, added when its first object is checked."""


def of_new(kind: Kind, obj: Json) -> tuple[Json, list[Problem]]:
    """The object as it is stored, and its errors."""
    assert kind.schema is not None
    done = completed(kind.schema, obj)
    if "status" in kind.subresources:
        done = {key: value for key, value in done.items() if key != "status"}
    return done, _judged(kind, done, None)


def of_changed(kind: Kind, new: Json, old: Json, subresource: str) -> tuple[Json, list[Problem]]:
    assert kind.schema is not None
    done = completed(kind.schema, new)
    parted = "status" in kind.subresources
    if subresource == "status":
        status = done.get("status", NOTHING)
        done = {**old, "metadata": {**old["metadata"], "resourceVersion": new["metadata"].get("resourceVersion")}}
        done.pop("status", None)
        if status is not NOTHING:
            done["status"] = status
        done["metadata"] = {**old["metadata"]}
        part = (kind.schema.get("properties") or {}).get("status") or {}
        problems = [] if status is NOTHING else _status_problems(part, status, old.get("status", NOTHING))
        return done, [*problems, *broken_rules(_rules(kind), done, old, problems)]
    if parted:
        done = {key: value for key, value in done.items() if key != "status"}
        if "status" in old:
            done["status"] = old["status"]
    if {**done, "metadata": 0} != {**old, "metadata": 0}:
        meta = {**done["metadata"], "generation": old["metadata"].get("generation", 0) + 1}
        done = {**done, "metadata": meta}
    return done, _judged(kind, done, old)


def completed(schema: Schema, obj: Json) -> Json:
    """The object without fields that the schema lacks, and with the schema's defaults."""
    top: Json = {key: obj[key] for key in ("kind", "apiVersion", "metadata") if key in obj}
    done: Json = _completed(schema, {key: value for key, value in obj.items() if key not in top})
    return {**top, **{key: value for key, value in done.items() if key not in top}}


def unknown_fields(schema: Schema, value: Any, path: str = "") -> list[str]:
    """The paths of fields that the schema lacks."""
    found: list[str] = []
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return found
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in value.items():
            where = f"{path}.{key}" if path else key
            if not path and key in ("kind", "apiVersion", "metadata"):
                continue
            if key in properties:
                found += unknown_fields(properties[key], each, where)
            elif isinstance(others, Mapping):
                found += unknown_fields(others, each, where)
            elif not others and not schema.get("x-kubernetes-embedded-resource"):
                found.append(where)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            found += unknown_fields(schema.get("items") or {}, each, f"{path}[{at}]")
    return found


def _completed(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or others is True
        done: Json = {}
        for key, each in value.items():
            part = properties.get(key)
            if part is None:
                if isinstance(others, Mapping):
                    if each is not None or others.get("nullable"):
                        done[key] = _completed(others, each)
                elif keeps:
                    done[key] = each
            elif each is not None or part.get("nullable"):
                done[key] = _completed(part, each)
        for key, part in properties.items():
            if "default" in part and key not in done:
                done[key] = _completed(part, part["default"])
        return done
    if isinstance(value, list) and schema.get("items"):
        return [_completed(schema["items"], each) for each in value]
    # Whole numbers are stored without a fraction.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST else value


def _rules(kind: Kind) -> Rules:
    if kind not in _RULES:
        # The problems were reported when the definition was created.
        _RULES[kind], _ = ready(kind.schema or {})
    return _RULES[kind]


def _judged(kind: Kind, new: Json, old: Json | None) -> list[Problem]:
    schema = kind.schema or {}
    without_metadata = {**schema, "properties": {**(schema.get("properties") or {}), "metadata": {}}}
    problems = list(value_problems(without_metadata, new, NOTHING if old is None else old, ""))
    return [*problems, *broken_rules(_rules(kind), new, old, problems)]


def _status_problems(schema: Schema, new: Any, old: Any) -> list[Problem]:
    """Errors of a status: paths start at the object, but messages start at the status."""
    found = value_problems(schema, new, old, "")
    return [
        Problem(each.type, "status" if each.field == "<nil>" else f"status.{each.field}", each.body) for each in found
    ]
