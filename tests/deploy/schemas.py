"""Schemas for kubeconform from what an API server itself publishes: no other address is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.controlplane.api import Api
from tests.deploy.manifests import Object

Definitions = dict[str, Any]


def write(api: Api, folder: Path, found: Iterable[Object]) -> str:
    """The schemas of these objects' kinds are in the folder, as far as the API server has them; answers kubeconform's
    `-schema-location` for them."""
    definitions: Definitions = api.get("/openapi/v2")["definitions"]
    wanted = {(each["apiVersion"], each["kind"]) for each in found}
    for name, each in definitions.items():
        for kind in each.get("x-kubernetes-group-version-kind", ()):
            version = f"{kind['group']}/{kind['version']}".lstrip("/")
            if (version, kind["kind"]) in wanted:
                # As kubeconform spells what it looks for.
                group = f"-{kind['group'].partition('.')[0]}" if kind["group"] else ""
                file = folder / f"{kind['kind']}{group}-{kind['version']}.json".lower()
                file.write_text(json.dumps(_whole(name, definitions)))
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def _whole(name: str, definitions: Definitions) -> Any:
    """The schema of that definition, with all that it refers to."""
    needed, left = set[str](), {name}
    while left:
        each = left.pop()
        needed.add(each)
        left |= set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(definitions[each]))) - needed
    strict = {each: _strict(definitions[each]) for each in needed}
    return {"$ref": f"#/definitions/{name}", "definitions": strict}


def _strict(schema: Any) -> Any:
    """The same, with fields refused that it does not name, and numbers where they may stand for texts."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(each) for key, each in schema.items() if key != "properties" and not key.startswith("x-")}
    if "properties" in schema:
        # Their names may be anything, those of a schema's own words too.
        made["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
    if made.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made
