"""Schemas for kubeconform from what an API server itself publishes: no other address is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from extender.controlplane.api import Api

DEFINITIONS = "definitions.json"


def write(api: Api, folder: Path) -> str:
    """The schemas of every kind are in the folder; answers kubeconform's `-schema-location` for them."""
    definitions = api.get("/openapi/v2")["definitions"]
    strict = {name: _strict(each) for name, each in definitions.items()}
    (folder / DEFINITIONS).write_text(json.dumps({"definitions": strict}))
    for name, each in definitions.items():
        for kind in each.get("x-kubernetes-group-version-kind", ()):
            group = f"-{kind['group'].partition('.')[0]}" if kind["group"] else ""
            file = f"{kind['kind']}{group}-{kind['version']}.json".lower()
            (folder / file).write_text(json.dumps({"$ref": f"{DEFINITIONS}#/definitions/{name}"}))
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def _strict(schema: Any) -> Any:
    """The same, with fields refused that it does not name, and numbers where they may stand for texts."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(each) for key, each in schema.items() if not key.startswith("x-")}
    if made.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made
