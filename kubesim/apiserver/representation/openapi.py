"""OpenAPI: describes the fields of objects and the parameters of requests to clients.

Each kind has its schema (a built-in kind that of the `kubernetes` package) and paths with the parameters of writes.
`fieldValidation` is among them, so kubectl leaves validation to the server. A PATCH lists no media types; otherwise
kubectl would merge by this schema instead of its compiled-in one. Version 2 has the same schemas. kubectl reads it only
to validate a List, skips missing kinds, and accepts only protobuf, which here describes no kinds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from kubesim.apiserver.machinery.discovery import GIT_VERSION
from kubesim.apiserver.representation import openapi_models
from kubesim.kinds import Json, Kind

JSON = "application/json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The Content-Type of protobuf. Clients request it with an @, which an answer must not have."""

_TITLE = "Kubernetes"
_GVK = "x-kubernetes-group-version-kind"
_STRING: Json = {"type": "string"}


def answer(kinds: Iterable[Kind], path: str, accept: str) -> tuple[bytes, str] | None:
    """The document at this path of /openapi and its Content-Type; None if it does not exist."""
    if path == "/openapi/v2":
        return (v2_protobuf(), V2_PROTOBUF) if "protobuf" in accept else (_written_v2(tuple(kinds)), JSON)
    if path == "/openapi/v3":
        return json.dumps(v3_index(kinds)).encode(), JSON
    if not path.startswith("/openapi/v3/"):
        return None
    found = _of(kinds, path.removeprefix("/openapi/v3/"))
    return (_written(found), JSON) if found else None


def v3_index(kinds: Iterable[Kind]) -> Json:
    """/openapi/v3: the address of each group version's document; it changes with the contents."""
    kinds = tuple(kinds)
    paths = {}
    for group_version in dict.fromkeys(kind.root.removeprefix("/") for kind in kinds):
        # Hashes the input of the document, because building the document takes long.
        made_of = [(kind.name, kind.plural, kind.namespaced, kind.schema) for kind in _of(kinds, group_version)]
        digest = hashlib.sha256(json.dumps([GIT_VERSION, made_of], sort_keys=True).encode()).hexdigest().upper()
        paths[group_version] = {"serverRelativeURL": f"/openapi/v3/{group_version}?hash={digest}"}
    return {"paths": paths}


def v3(kinds: Iterable[Kind], group_version: str) -> Json | None:
    """/openapi/v3/<group_version>, such as `api/v1` or `apis/batch/v1`; None if not served."""
    found = _of(kinds, group_version)
    return _document(found) if found else None


def v2(kinds: Iterable[Kind]) -> Json:
    """/openapi/v2 as JSON: all schemas, without paths."""
    schemas: Json = {}
    for kind in kinds:
        schemas |= _schemas(kind)
    head = {"swagger": "2.0", "info": {"title": _TITLE, "version": GIT_VERSION}, "paths": {}}
    return head | {"definitions": dict(sorted(schemas.items()))}


def v2_protobuf() -> bytes:
    """/openapi/v2 as protobuf: a document without kinds."""
    info = _field(1, _TITLE.encode()) + _field(2, GIT_VERSION.encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _field(number: int, content: bytes) -> bytes:
    """A protobuf field: a string or message of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def _of(kinds: Iterable[Kind], group_version: str) -> tuple[Kind, ...]:
    wanted = f"/{group_version.strip('/')}"
    return tuple(sorted((kind for kind in kinds if kind.root == wanted), key=lambda it: it.plural))


@lru_cache(maxsize=32)
def _written(kinds: tuple[Kind, ...]) -> bytes:
    return json.dumps(_document(kinds)).encode()


@lru_cache(maxsize=2)
def _written_v2(kinds: tuple[Kind, ...]) -> bytes:
    text = json.dumps(v2(kinds))
    return text.replace(openapi_models.REFERENCE, "#/definitions/").encode()


def _document(kinds: Sequence[Kind]) -> Json:
    schemas: Json = {}
    paths: Json = {}
    for kind in kinds:
        schemas |= _schemas(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": GIT_VERSION},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _schema_name(kind: Kind) -> str:
    """A schema name, unique in a document; kubectl shows the part after the last dot."""
    if kind.schema is None:
        return openapi_models.of_kind(kind)[0]
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.name}"


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _schemas(kind: Kind) -> Json:
    """The schema of the kind and all schemas that it refers to, by name."""
    if kind.schema is None:
        name, schemas = openapi_models.of_kind(kind)
        return schemas | {name: schemas[name] | {_GVK: [_gvk(kind)]}}
    described = kind.schema.get("properties") or {}
    own = {**kind.schema, "type": "object", "properties": described | _type_fields(kind), _GVK: [_gvk(kind)]}
    return openapi_models.of_metadata() | {_schema_name(kind): own}


def _type_fields(kind: Kind) -> Json:
    metadata = openapi_models.REFERENCE + openapi_models.called(openapi_models.METADATA)
    return {
        "apiVersion": {"type": "string", "description": f"{kind.api_version}, for objects of this kind."},
        "kind": {"type": "string", "description": f"{kind.name}, for objects of this kind."},
        "metadata": {
            "description": "What every object has: its name, labels and the like.",
            "default": {},
            "allOf": [{"$ref": metadata}],
        },
    }


_PRETTY = ("pretty", "Whether the answer is indented.")
_WRITE = (
    ("dryRun", "All: say what would become of this, and change nothing."),
    ("fieldManager", "Who makes this change."),
    ("fieldValidation", "What becomes of unknown and repeated fields: Ignore, Warn or Strict."),
    _PRETTY,
)
_LIST = (
    ("labelSelector", "Only objects with these labels."),
    ("fieldSelector", "Only objects with these fields."),
    ("limit", "At most so many objects."),
    ("continue", "Where the previous answer ended."),
    ("resourceVersion", "From which version on."),
    ("watch", "Stream changes."),
    _PRETTY,
)
_DELETE = (
    ("dryRun", "All: say what would become of this, and change nothing."),
    ("gracePeriodSeconds", "How long the object has to end."),
    ("propagationPolicy", "What becomes of objects that it owns: Orphan, Background or Foreground."),
    _PRETTY,
)


def _paths(kind: Kind) -> Json:
    """The paths of a kind, with the operations that discovery lists."""
    operations = {
        "list": ("get", _operation(kind, "list", _LIST)),
        "create": ("post", _operation(kind, "post", _WRITE, body=True)),
    }
    of_one = {
        "get": ("get", _operation(kind, "get", (_PRETTY,))),
        "update": ("put", _operation(kind, "put", _WRITE, body=True)),
        "patch": (
            "patch",
            _operation(kind, "patch", (*_WRITE, ("force", "Whether to take fields from other managers."))),
        ),
        "delete": ("delete", _operation(kind, "delete", _DELETE)),
    }
    paths: Json = {}
    for path, known, named in (
        (kind.path("{namespace}"), operations, False),
        (kind.path("{namespace}", "{name}"), of_one, True),
    ):
        found = dict(known[verb] for verb in known if verb in kind.verbs)
        if found:
            paths[path] = {"parameters": _place(kind, named=named), **found}
    return paths


def _place(kind: Kind, *, named: bool) -> list[Json]:
    names = (["namespace"] if kind.namespaced else []) + (["name"] if named else [])
    return [{"name": name, "in": "path", "required": True, "schema": _STRING} for name in names]


def _operation(kind: Kind, action: str, parameters: Sequence[tuple[str, str]], *, body: bool = False) -> Json:
    content: Json = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_schema_name(kind)}"}}}
    answer: Json = {"description": "OK"}
    if action not in ("list", "delete"):
        answer["content"] = content
    operation: Json = {
        "x-kubernetes-action": action,
        _GVK: _gvk(kind),
        "parameters": [_query(name, said) for name, said in parameters],
        "responses": {"200": answer},
    }
    return operation | ({"requestBody": {"required": True, "content": content}} if body else {})


def _query(name: str, description: str) -> Json:
    types: dict[str, Any] = {
        "limit": {"type": "integer"},
        "gracePeriodSeconds": {"type": "integer"},
        "watch": {"type": "boolean"},
        "force": {"type": "boolean"},
    }
    return {"name": name, "in": "query", "description": description, "schema": types.get(name, _STRING)}
