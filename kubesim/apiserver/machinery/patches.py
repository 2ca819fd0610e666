"""Patches: applies a JSON patch (RFC 6902) or a merge patch (RFC 7396) to an object.

Inputs never change; results share unchanged parts. `strategic` has the strategic merge patches, which depend on the
kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubesim.apiserver.machinery.failures import Failure, bad_request
from kubesim.kinds import Json

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MOST_OPERATIONS = 10_000
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def merge(target: Any, patch: Any) -> Any:
    """Merges by RFC 7396: null removes, an object is merged, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def json_patch(target: Json, operations: object) -> Json:
    """Applies RFC 6902. Raises Failure: 400, 413 for too many operations, 422 if one fails."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > _MOST_OPERATIONS:
        said = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise Failure(413, "RequestEntityTooLarge", f"Request entity too large: {said}")
    try:
        return operated(target, operations)
    except Impossible:
        message = "the server rejected our request due to an error in our request"
        raise Failure(422, "Invalid", message, {}) from None


class Impossible(Exception):
    """The operation failed on this document. kube-apiserver gives no reason either."""


class Untrue(Impossible):
    """A `test` operation found another value than it names."""


def operated(target: Json, operations: Sequence[Mapping[str, Any]]) -> Json:
    """The object after all operations. Raises Impossible."""
    result: Any = target
    for operation in operations:
        result = _apply(result, operation)
    if not isinstance(result, dict):
        raise Impossible
    return result


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    path = operation.get("path")
    match operation.get("op"):
        case "add":
            return _set(document, _parts(path), _value(operation), insert=True)
        case "replace" if path == "":
            return _value(operation)
        case "replace":
            return _set(document, _parts(path), _value(operation), insert=False)
        case "remove":
            return _remove(document, _parts(path))
        case "test":
            _test(document if path == "" else _get(document, _parts(path)), operation.get("value"))
            return document
        case "copy":
            return _set(document, _parts(path), _get(document, _parts(operation.get("from"))), insert=True)
        case "move":
            source = _parts(operation.get("from"))
            return _set(_remove(document, source), _parts(path), _get(document, source), insert=True)
    raise Impossible


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise Impossible
    return operation["value"]


def _test(found: Any, wanted: Any) -> None:
    # `True == 1` in Python, but not in JSON.
    if isinstance(found, bool) != isinstance(wanted, bool) or found != wanted:
        raise Untrue


def _parts(path: Any) -> list[str]:
    """The keys of a path; kube-apiserver's library ignores the part before the first slash."""
    if not isinstance(path, str) or "/" not in path:
        raise Impossible
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(document: Any, parts: Sequence[str]) -> Any:
    """The value there; a missing key of an existing object reads as null, as in that library."""
    for part in parts[:-1]:
        document = document.get(part) if isinstance(document, dict) else _item(document, part)
    if isinstance(document, dict):
        return document.get(parts[-1])
    return _item(document, parts[-1])


def _item(document: Any, part: str) -> Any:
    if not isinstance(document, list):
        raise Impossible
    return document[_position(document, part)]


def _set(document: Any, parts: Sequence[str], value: Any, *, insert: bool) -> Any:
    """Replacing a missing key adds it, as in kube-apiserver's library."""
    part, rest = parts[0], parts[1:]
    if isinstance(document, dict):
        return {**document, part: _set(document.get(part), rest, value, insert=insert) if rest else value}
    if not isinstance(document, list):
        raise Impossible
    position = _position(document, part, inserting=insert and not rest)
    if rest:
        return [*document[:position], _set(document[position], rest, value, insert=insert), *document[position + 1 :]]
    return [*document[:position], value, *document[position + (0 if insert else 1) :]]


def _position(document: Sequence[Any], part: str, *, inserting: bool = False) -> int:
    """A list index in Go's format; a negative one counts from the end, as in that library."""
    size = len(document) + (1 if inserting else 0)
    if inserting and part == "-":
        return len(document)
    if not _WHOLE.fullmatch(part) or not -size <= int(part) < size:
        raise Impossible
    return int(part) % size


def _remove(document: Any, parts: Sequence[str]) -> Any:
    part, rest = parts[0], parts[1:]
    if isinstance(document, dict):
        if part not in document:
            raise Impossible
        if rest:
            return {**document, part: _remove(document[part], rest)}
        return {key: value for key, value in document.items() if key != part}
    if isinstance(document, list):
        position = _position(document, part)
        kept = [_remove(document[position], rest)] if rest else []
        return [*document[:position], *kept, *document[position + 1 :]]
    raise Impossible


def parse(body: bytes) -> Any:
    """The decoded body of a patch. Raises Failure (400)."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
        raise bad_request(f"error decoding patch: {why}") from None
