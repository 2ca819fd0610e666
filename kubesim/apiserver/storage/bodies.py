"""Bodies: decodes the body of a request as an object of the requested kind, by its media type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from kubesim.apiserver.machinery.failures import Failure, bad_request, invalid, unsupported_media, wrong
from kubesim.apiserver.machinery.metadata import go_kind
from kubesim.apiserver.machinery.wire import JSON, Request
from kubesim.apiserver.representation import nesting, protobuf, shapes
from kubesim.apiserver.schemas import schema
from kubesim.kinds import Json, Kind

_NO_KIND = Kind("", "", "", "")
_GO_TYPE = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
YAML = ("application/yaml", "application/apply-patch+yaml")


def read(request: Request, kind: Kind) -> Json:
    """The object in the request, of whatever kind. Raises Failure (400, 415)."""
    media = request.content_type
    try:
        if media == protobuf.MEDIA_TYPE:
            content: Any = protobuf.decode(request.body)
        elif media in YAML:
            content = yaml.safe_load(request.body)
            if fault := nesting.fault_of(content):
                raise _unrecognized(request, kind, fault)
        elif media in (JSON, ""):
            if fault := nesting.fault_of_json(request.body):
                raise _unrecognized(request, kind, fault)
            content = msgspec.json.decode(request.body)
        else:
            raise unsupported_media((JSON, "application/yaml", protobuf.MEDIA_TYPE))
    except RecursionError:
        raise _unrecognized(request, kind, "exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError, protobuf.NotUnderstood) as error:
        why = str(error) if request.body.strip() and "truncated" not in str(error) else "unexpected end of JSON input"
        raise _unrecognized(request, kind, why) from None
    if not isinstance(content, dict):
        said = f"json: cannot unmarshal {go_kind(content)} into Go value of type {_GO_TYPE}"
        raise _unrecognized(request, kind, said)
    return content


def _unrecognized(request: Request, kind: Kind, why: str) -> Failure:
    shown = request.body[:100].decode(errors="replace") if request.body.startswith(b"{") else request.body[:100].hex()
    said = f"couldn't get version/kind; json parse error: {why} ({shown or '<empty>'})"
    return bad_request(f"the object provided is unrecognized (must be of type {kind.name}): {said}")


def read_other(request: Request, name: str) -> Json:
    """A body that is not stored: Binding, Eviction, DeleteOptions. Raises Failure (400, 415)."""
    return shapes.known_other(name, read(request, Kind("", "v1", name, "")))


def read_object(request: Request, kind: Kind, served: Iterable[Kind]) -> Json:
    """The object in the request, with its kind and fields checked. Raises Failure (400, 415)."""
    obj = read(request, kind)
    _check_kind(kind, obj, request, served)
    unknown: list[str] = []
    obj = shapes.known(kind, obj, unknown)
    if kind.schema is not None and request.query.get("fieldValidation") == "Strict":
        unknown = schema.unknown_fields(kind.schema, obj)
    if unknown and request.query.get("fieldValidation") == "Strict":
        raise bad_request(f"{_not_handled(kind, kind.name)}: strict decoding error: {_listed(unknown)}")
    return obj


def read_review(request: Request, kind: Kind, served: Iterable[Kind]) -> Json:
    """The review in the request, with unchecked fields. Raises Failure (400, 415)."""
    obj = read(request, kind)
    _check_kind(kind, obj, request, served)
    return obj


def _listed(unknown: list[str]) -> str:
    return ", ".join(f'unknown field "{path}"' for path in unknown)


def _check_kind(kind: Kind, obj: Json, request: Request, served: Iterable[Kind]) -> None:
    given, version = obj.get("kind") or "", obj.get("apiVersion") or ""
    for key, value in (("kind", given), ("apiVersion", version)):
        if not isinstance(value, str):
            said = f"json: cannot unmarshal {go_kind(value)} into Go struct field .{key} of type string"
            raise _unrecognized(request, kind, said)
    if kind.is_custom:
        for key, value in (("Kind", given), ("apiVersion", version)):
            if not value:
                raise _unrecognized_custom(kind, key, request)
    given, version = given or kind.name, version or kind.api_version
    if (given, version) == (kind.name, kind.api_version):
        return
    if kind.is_custom and version == kind.api_version:
        raise other_custom_kind(kind, obj)
    if kind.is_custom and given == kind.name:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    of_version = version.rpartition("/")[2]
    if any((each.name, each.api_version) == (given, version) for each in served):
        group = kind.group.partition(".")[0] or "core"
        why = f"converting ({of_version}.{given}) to ({group}.{kind.name}): unknown conversion"
    else:
        why = f'no kind "{given}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    raise bad_request(f'{given} in version "{of_version}" cannot be handled as a {kind.name}: {why}')


def other_custom_kind(kind: Kind, obj: Json) -> Failure:
    """The failure for an object whose kind differs from the path's."""
    given = obj.get("kind") or ""
    problem = wrong("kind", given, f"must be {kind.name}")
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    return invalid(kind, str(name or ""), [problem], called=given)


def strict_problems(kind: Kind, patched: Json, shown: str = "") -> Failure | None:
    """The failure if a strict patch made an object with unknown fields.

    `shown`: replaces the object in it.
    """
    unknown: list[str] = []
    if kind.schema is not None:
        unknown = schema.unknown_fields(kind.schema, patched)
    else:
        shapes.known(kind, patched, unknown)
    if not unknown:
        return None
    text = shown or msgspec.json.encode(patched).decode()
    return invalid(_NO_KIND, "", [wrong("patch", text, f"strict decoding error: {_listed(unknown)}")])


def _unrecognized_custom(kind: Kind, key: str, request: Request) -> Failure:
    text = request.body.decode(errors="replace")
    start = text if len(text) <= 30 else text[:30] + " ..."
    said = f"Object '{key}' is missing in '{text}' ({start})"
    return bad_request(f"the object provided is unrecognized (must be of type {kind.name}): {said}")


def _not_handled(kind: Kind, given: str) -> str:
    return f'{given} in version "{kind.version}" cannot be handled as a {kind.name}'
