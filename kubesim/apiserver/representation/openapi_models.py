"""OpenAPI models: the schemas of built-in kinds, from the models of the `kubernetes` package.

The models are imported at the first use, because the import takes longer than the start of the cluster.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kubesim.kinds import Json, Kind

REFERENCE = "#/components/schemas/"
METADATA = "V1ObjectMeta"

_NAME = re.compile(r"((?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?)(?=[A-Z])(.*)")


def called(model: str) -> str:
    """The schema name of a model; clients show the part after the last dot."""
    found = _NAME.fullmatch(model)
    return f"io.k8s.{found[1].lower()}.{found[2]}" if found else f"io.k8s.{model}"


@cache
def of_kind(kind: Kind) -> tuple[str, Json]:
    """The name of the kind's own model, and by name its schema and all that it refers to."""
    from kubernetes.client import models

    version = kind.version.capitalize()
    group = (kind.group.partition(".")[0] or "core").capitalize()
    name = next(each for each in (f"{version}{kind.name}", f"{group}{version}{kind.name}") if hasattr(models, each))
    return called(name), _schemas(name)


@cache
def of_metadata() -> Json:
    """The schema of object metadata and all that it refers to, by name."""
    return _schemas(METADATA)


def _schemas(name: str) -> Json:
    from kubernetes.client import models

    whole = getattr(models, name).model_json_schema(by_alias=True, ref_template="{model}")
    found = {**whole.pop("$defs", {}), name: whole}
    return {called(each): _plain(schema) for each, schema in found.items()}


def _plain(schema: Any) -> Any:
    """The schema as Kubernetes writes it: no null alternatives, titles or siblings of `$ref`."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    said = _described(schema["description"]) if isinstance(schema.get("description"), str) else ""
    choices = [each for each in schema.get("anyOf") or () if each != {"type": "null"}]
    if len(choices) == 1:
        inner = _plain(choices[0])
        return {**inner, "description": said} if said else inner
    if "$ref" in schema:
        reference = {"$ref": REFERENCE + called(schema["$ref"])}
        return ({"description": said} if said else {}) | {"default": {}, "allOf": [reference]}
    done: Json = {"description": said} if said else {}
    if choices:
        return {**done, "x-kubernetes-int-or-string": True, "oneOf": [_plain(each) for each in choices]}
    for key in ("type", "format", "enum"):
        if key in schema:
            done[key] = schema[key]
    if schema.get("properties"):
        done["properties"] = {name: _plain(each) for name, each in schema["properties"].items()}
    if schema.get("required"):
        done["required"] = schema["required"]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            done[key] = _plain(schema[key])
    return done


def _described(text: str) -> str:
    """The description without the text that the generator of the models adds."""
    return text.partition("\n\nAttributes:")[0].strip()
