"""Failures: the negative answers of the API server, each a Kubernetes Status.

Each function words one kind of failure: code, reason, message and details.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubesim.kinds import Json, Kind

FIELD_IMMUTABLE = "field is immutable"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class Failure(Exception):
    """An exception whose `status` becomes the answer to the request."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, metadata: Json | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self._metadata = metadata or {}

    def status(self) -> Json:
        said: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self._metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            said["reason"] = self.reason
        if self.details is not None:
            said["details"] = {key: value for key, value in self.details.items() if value}
        said["code"] = self.code
        return said


@dataclass(frozen=True)
class Problem:
    """One invalid field. `body` is the message without the field."""

    type: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def wrong(field: str, value: object, why: str) -> Problem:
    return Problem("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {why}")


def missing(field: str, why: str = "") -> Problem:
    return Problem("FieldValueRequired", field, "Required value" + (f": {why}" if why else ""))


def duplicate(field: str, value: object, why: str = "") -> Problem:
    return Problem("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}" + (f": {why}" if why else ""))


def forbidden_field(field: str, why: str) -> Problem:
    return Problem("FieldValueForbidden", field, f"Forbidden: {why}")


def unsupported(field: str, value: object, accepted: Sequence[str]) -> Problem:
    known = ", ".join(f'"{each}"' for each in accepted)
    tail = f": supported values: {known}" if accepted else ""
    return Problem("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}{tail}")


def too_long(field: str, limit: int) -> Problem:
    return Problem("FieldValueTooLong", field, f"Too long: may not be more than {limit} byte{'s' * (limit != 1)}")


def too_many(field: str, count: int, limit: int) -> Problem:
    items = "item" if limit == 1 else "items"
    return Problem("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} {items}")


def wrong_type(field: str, value: object, why: str) -> Problem:
    return Problem("FieldValueTypeInvalid", field, f"Invalid value: {_shown(value)}: {why}")


def _shown(value: object) -> str:
    """The value as Go's `%#v` and `%v` show it in messages, by kind of value."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    if value is None:
        return "null"
    return msgspec.json.encode(value).decode()


# -- failures about an object of a kind --------------------------------------------------------------------------------


def not_found(kind: Kind, name: str) -> Failure:
    return Failure(404, "NotFound", f'{kind!r} "{name}" not found', _details(kind, name))


def exists(kind: Kind, name: str, *, generated: bool = False, leaving: bool = False) -> Failure:
    """`generated`: the server made the name. `leaving`: the existing object is being deleted."""
    tail = ", the server was not able to generate a unique name for the object" if generated else ""
    start = "object is being deleted: " if leaving else ""
    return Failure(409, "AlreadyExists", f'{start}{kind!r} "{name}" already exists{tail}', _details(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED, resource: str = "") -> Failure:
    """`resource`: the subject of the message if it is not the kind, as for `pods/binding`."""
    shown = f"{resource or kind.plural}.{kind.group}" if kind.group else resource or kind.plural
    details: Json = {"name": name, "group": kind.group, "kind": resource or kind.plural}
    return Failure(409, "Conflict", f'Operation cannot be fulfilled on {shown} "{name}": {why}', details)


def forbidden(kind: Kind, name: str, why: str) -> Failure:
    return Failure(403, "Forbidden", f'{kind!r} "{name}" is forbidden: {why}', _details(kind, name))


def invalid(kind: Kind, name: str, problems: Sequence[Problem], called: str = "") -> Failure:
    """`called`: replaces the kind's name in the message."""
    name_of_kind = called or kind.name
    shown = f"{name_of_kind}.{kind.group}" if kind.group else name_of_kind
    said = list(dict.fromkeys(str(problem) for problem in problems))
    whole = said[0] if len(said) == 1 else "[" + ", ".join(said) + "]"
    causes = [{"reason": each.type, "message": each.body, "field": each.field} for each in problems]
    details: Json = {"name": name, "group": kind.group, "kind": called or kind.name, "causes": causes}
    return Failure(422, "Invalid", f'{shown} "{name}" is invalid: {whole}', details)


def no_method() -> Failure:
    return Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_supported(kind: Kind, verb: str) -> Failure:
    """In the words of the server of custom resources."""
    message = f'{verb} is not supported on resources of kind "{kind!r}"'
    return Failure(405, "MethodNotAllowed", message, {"group": kind.group, "kind": kind.plural})


def no_resource() -> Failure:
    """The group and version exist, but not this resource or subresource in it."""
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def other_uid(kind: Kind, key: str, name: str, asked: str, found: str, resource: str = "") -> Failure:
    """The object has another UID than the write expects."""
    why = f"UID in precondition: {asked}, UID in object meta: {found}"
    return _precondition(kind, key, name, why, resource)


def other_version(kind: Kind, key: str, name: str, asked: str, found: str, resource: str = "") -> Failure:
    why = f"ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {found}"
    return _precondition(kind, key, name, why, resource)


def _precondition(kind: Kind, key: str, name: str, why: str, resource: str) -> Failure:
    group = f"{kind.group}/" if kind.is_custom else ""
    where = f"/registry/{group}{kind.plural}/{key.lstrip('/')}"
    said = f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0"
    return conflict(kind, name, f"{said}, AdditionalErrorMsg: Precondition failed: {why}", resource)


# -- failures of other kinds -------------------------------------------------------------------------------------------


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def unreadable_quantity(kind: str) -> Failure:
    pattern = r"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    why = f"quantities must match the regular expression {pattern}"
    return bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')


def expired(message: str, *, following: str = "") -> Failure:
    return Failure(410, "Expired", message, metadata={"continue": following} if following else None)


def unsupported_media(accepted: Sequence[str] = ()) -> Failure:
    """`accepted`: the media types that the message names; some handlers name none."""
    if not accepted:
        return Failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    said = "the body of the request was in an unknown format - accepted media types include"
    return Failure(415, "UnsupportedMediaType", f"{said}: {', '.join(accepted)}")


def not_acceptable(message: str) -> Failure:
    return Failure(406, "NotAcceptable", message, {})


def unauthorized() -> Failure:
    return Failure(401, "Unauthorized", "Unauthorized")


def too_many_requests(message: str, causes: Sequence[Json] = (), retry_after: int = 0) -> Failure:
    details: Json = {"causes": list(causes), "retryAfterSeconds": retry_after}
    return Failure(429, "TooManyRequests", message, details)


def too_new(asked: int, current: int) -> Failure:
    """The resource version is newer than the current one."""
    details: Json = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Failure(504, "Timeout", message, details)


def server_error(message: str) -> Failure:
    return Failure(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural}
