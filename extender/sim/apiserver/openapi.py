"""OpenAPI: what clients are told of the fields of objects and of the parameters of requests.

The smallest true documents that kubectl needs. For each kind: a schema (the whole one of a custom resource; of a
built-in kind the fields at the top, for kubectl has compiled in what it merges by) and its paths, with the parameters
of writes: because `fieldValidation` is among them, kubectl leaves validation to the server. A PATCH does not list its
media types: kubectl would then merge by the schema here instead of by its own. Version 2 says nothing of kinds; kubectl
asks for it only to validate a List itself, skips what it does not find there, and accepts protobuf alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from extender.sim.apiserver.discovery import GIT_VERSION
from extender.sim.kinds import Json, Kind

JSON = "application/json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""How protobuf is sent. Clients ask for it with an @ in the middle, which they do not understand in an answer."""

_TITLE = "Kubernetes"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_GVK = "x-kubernetes-group-version-kind"
_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer", "format": "int32"}
_LONG: Json = {"type": "integer", "format": "int64"}
_BOOLEAN: Json = {"type": "boolean"}
_TIME: Json = {"type": "string", "format": "date-time"}
_STRINGS: Json = {"type": "object", "additionalProperties": _STRING}
_ANYTHINGS: Json = {"type": "array", "items": _ANYTHING}


def answer(kinds: Iterable[Kind], path: str, accept: str) -> tuple[bytes, str] | None:
    """The document at this path of /openapi and its Content-Type; None if there is none."""
    if path == "/openapi/v2":
        return (v2_protobuf(), V2_PROTOBUF) if "protobuf" in accept else (json.dumps(v2()).encode(), JSON)
    if path == "/openapi/v3":
        return json.dumps(v3_index(kinds)).encode(), JSON
    document = v3(kinds, path.removeprefix("/openapi/v3/")) if path.startswith("/openapi/v3/") else None
    return None if document is None else (json.dumps(document).encode(), JSON)


def v3_index(kinds: Iterable[Kind]) -> Json:
    """/openapi/v3: where the document of each group and version is. The address changes with what is in it."""
    kinds = tuple(kinds)
    paths = {}
    for group_version in dict.fromkeys(kind.root.removeprefix("/") for kind in kinds):
        content = json.dumps(v3(kinds, group_version), sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest().upper()
        paths[group_version] = {"serverRelativeURL": f"/openapi/v3/{group_version}?hash={digest}"}
    return {"paths": paths}


def v3(kinds: Iterable[Kind], group_version: str) -> Json | None:
    """/openapi/v3/<group_version>, which is as in a path: `api/v1`, `apis/batch/v1`. None if there is no such one."""
    found = [kind for kind in kinds if kind.root == f"/{group_version.strip('/')}"]
    if not found:
        return None
    schemas: Json = {_METADATA: _METADATA_SCHEMA}
    paths: Json = {}
    for kind in sorted(found, key=lambda it: it.plural):
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": GIT_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def v2() -> Json:
    """/openapi/v2 as JSON."""
    return {"swagger": "2.0", "info": {"title": _TITLE, "version": GIT_VERSION}, "paths": {}}


def v2_protobuf() -> bytes:
    """/openapi/v2 as protobuf: the same document."""
    info = _field(1, _TITLE.encode()) + _field(2, GIT_VERSION.encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _field(number: int, content: bytes) -> bytes:
    """A string or message of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def _schema_name(kind: Kind) -> str:
    """Unique among the kinds of a document; of its dots kubectl shows what is after the last."""
    domain = ".".join(reversed(kind.group.split("."))) if "." in kind.group else f"io.k8s.api.{kind.group or 'core'}"
    return f"{domain}.{kind.version}.{kind.name}"


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _schema(kind: Kind) -> Json:
    if kind.schema is not None:
        schema = dict(kind.schema)
        described = schema.get("properties") or {}
        schema["type"] = "object"
        schema["properties"] = described | _type_fields(kind)
    else:
        schema = {
            "type": "object",
            "description": f"{kind.name} of {kind.api_version}. The reference of Kubernetes describes its fields.",
            "properties": _type_fields(kind) | _FIELDS.get((kind.group, kind.name), _SPEC_AND_STATUS),
        }
    return schema | {_GVK: [_gvk(kind)]}


def _type_fields(kind: Kind) -> Json:
    return {
        "apiVersion": {"type": "string", "description": f"{kind.api_version}, for objects of this kind."},
        "kind": {"type": "string", "description": f"{kind.name}, for objects of this kind."},
        "metadata": {
            "description": "What every object has: its name, labels and the like.",
            "default": {},
            "allOf": [{"$ref": f"#/components/schemas/{_METADATA}"}],
        },
    }


def _described(schema: Json, **descriptions: str) -> Json:
    """Fields of this schema."""
    return {name: schema | {"description": said} for name, said in descriptions.items()}


_METADATA_SCHEMA: Json = {
    "type": "object",
    "description": "What every object has.",
    "properties": _described(
        _STRING,
        name="Unique among objects of the kind in the namespace.",
        generateName="Instead of a name: what the name that is made up begins with.",
        namespace="Where it is; kinds of the cluster have none.",
        uid="Unique among all objects there ever were. Given by the server.",
        resourceVersion="Which version of the object this is. Given by the server.",
        selfLink="No longer used.",
    )
    | _described(_STRINGS, labels="What selectors choose it by.", annotations="What programs note on it.")
    | _described(
        _ANYTHINGS, ownerReferences="The objects with whose end it ends.", managedFields="Who has set which fields."
    )
    | _described({"type": "array", "items": _STRING}, finalizers="What must be done before it is gone.")
    | _described(
        _LONG,
        generation="How often what is wanted has changed.",
        deletionGracePeriodSeconds="How long it has to end.",
    )
    | _described(
        _TIME,
        creationTimestamp="When it was created. Given by the server.",
        deletionTimestamp="When it is to be gone, once it is being deleted.",
    ),
}

_SPEC = _described(_ANYTHING, spec="What is wanted.")
_SPEC_AND_STATUS = _SPEC | _described(_ANYTHING, status="How it is, as its controllers tell.")
_EVENT = (
    _described(
        _STRING,
        type="Normal or Warning.",
        reason="What happened, in a word.",
        action="What was done, in a word.",
        reportingInstance="Which instance of the program says so.",
    )
    | _described(_ANYTHING, series="How often it happened, and when last.", related="What else has to do with it.")
    | _described(_TIME, eventTime="When it happened.")
)
_FIELDS: dict[tuple[str, str], Json] = {
    ("", "ConfigMap"): _described(_STRINGS, data="Text by key.", binaryData="Bytes in base64 by key.")
    | _described(_BOOLEAN, immutable="Whether its data can not be changed."),
    ("", "Secret"): _described(_STRINGS, data="Bytes in base64 by key.", stringData="Text by key, for writing.")
    | _described(_STRING, type="Which kind of secret it is.")
    | _described(_BOOLEAN, immutable="Whether its data can not be changed."),
    ("", "ServiceAccount"): _described(
        _ANYTHINGS, secrets="Secrets that its pods may use.", imagePullSecrets="Secrets to pull images with."
    )
    | _described(_BOOLEAN, automountServiceAccountToken="Whether its pods get a token."),
    ("", "Event"): _EVENT
    | _described(_ANYTHING, involvedObject="To what it happened.", source="Who says so.")
    | _described(_STRING, message="What happened, in a sentence.", reportingComponent="Which program says so.")
    | _described(_TIME, firstTimestamp="When it happened first.", lastTimestamp="When it happened last.")
    | _described(_INTEGER, count="How often it happened."),
    ("events.k8s.io", "Event"): _EVENT
    | _described(_ANYTHING, regarding="To what it happened.", deprecatedSource="The source in the older API.")
    | _described(_STRING, note="What happened, in a sentence.", reportingController="Which program says so.")
    | _described(
        _TIME,
        deprecatedFirstTimestamp="The firstTimestamp in the older API.",
        deprecatedLastTimestamp="The lastTimestamp in the older API.",
    )
    | _described(_INTEGER, deprecatedCount="The count in the older API."),
    ("coordination.k8s.io", "Lease"): _SPEC,
    ("scheduling.k8s.io", "PriorityClass"): _described(
        _STRING,
        description="When to use it.",
        preemptionPolicy="PreemptLowerPriority, or Never: whether its pods evict others.",
    )
    | _described(_INTEGER, value="The priority of its pods.")
    | _described(_BOOLEAN, globalDefault="Whether pods without a class have this one."),
}
"""The fields at the top of kinds that do not have a spec and a status."""


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
    root = kind.path("{namespace}")
    one = kind.path("{namespace}", "{name}")
    return {
        root: {
            "parameters": _place(kind, named=False),
            "get": _operation(kind, "list", _LIST),
            "post": _operation(kind, "post", _WRITE, body=True),
        },
        one: {
            "parameters": _place(kind, named=True),
            "get": _operation(kind, "get", (_PRETTY,)),
            "put": _operation(kind, "put", _WRITE, body=True),
            "patch": _operation(kind, "patch", (*_WRITE, ("force", "Whether to take fields from other managers."))),
            "delete": _operation(kind, "delete", _DELETE),
        },
    }


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
