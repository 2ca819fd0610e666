"""Problems: the answers to refused calls, as RFC 9457 problem details.

Defines the kinds, with titles and HTTP statuses. Every error of this service, on every path, has the same five members:
type, title, status, detail, field (null if no part of the request is at fault).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

CONTENT_TYPE = "application/problem+json"
LONGEST_DETAIL = 4000
"""Characters; a refusal should not be larger than the request that it refuses."""


class ProblemKind(Enum):
    """The kinds of problem: slug of the type URI, status, title."""

    NOT_HTTP = ("not-http", 400, "The request is not HTTP")
    NOT_JSON = ("not-json", 400, "The body is not JSON")
    WRONG_SHAPE = ("wrong-shape", 400, "The body has the wrong structure")
    UNAUTHENTICATED = ("unauthenticated", 401, "The caller is unknown")
    NOT_ALLOWED = ("not-allowed", 403, "Not allowed")
    OUTSIDE_DOMAIN = ("outside-domain", 403, "Outside the namespace's scheduling domain")
    QUOTA_EXCEEDED = ("quota-exceeded", 403, "The namespace's quota is exceeded")
    NOT_FOUND = ("not-found", 404, "Not found")
    WRONG_METHOD = ("wrong-method", 405, "Wrong method")
    TOO_SLOW = ("too-slow", 408, "The request did not arrive in time")
    CONFLICT = ("conflict", 409, "The transaction conflicts")
    NOT_IN_FORCE = ("not-in-force", 409, "The policy is not in force")
    BEING_DELETED = ("being-deleted", 409, "The object is being deleted")
    VERSION_CONFLICT = ("version-conflict", 412, "Not at the expected version")
    TOO_LARGE = ("too-large", 413, "The body is too large")
    INVALID = ("invalid", 422, "A value is invalid")
    HEAD_TOO_LARGE = ("head-too-large", 431, "The request's head is too large")
    TOO_MANY = ("too-many", 429, "Too many calls")
    INTERNAL = ("internal", 500, "Internal error")
    NOT_READY = ("not-ready", 503, "The service is not ready")
    NOT_LEADING = ("not-leading", 503, "Another replica leads")
    BUSY = ("busy", 503, "The service is overloaded")
    UNAVAILABLE = ("unavailable", 503, "The Kubernetes API server cannot be reached")

    @property
    def uri(self) -> str:
        return f"urn:escher:problem:{self.value[0]}"

    @property
    def status(self) -> int:
        return self.value[1]

    @property
    def title(self) -> str:
        return self.value[2]


class Problem(Exception):
    """A refused call. `extra`: further members of the answer; `headers`: sent with it."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        field: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.field = field
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return self.kind.status

    def body(self) -> bytes:
        """Returns the problem details, one JSON value without a trailing newline."""
        return details(
            self.status, self.detail, type_uri=self.kind.uri, title=self.kind.title, field=self.field, extra=self.extra
        )


def details(
    status: int,
    detail: str,
    *,
    type_uri: str,
    title: str,
    field: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """Returns problem details as JSON. A detail that is too long is cut."""
    said = detail if len(detail) <= LONGEST_DETAIL else f"{detail[:LONGEST_DETAIL]}..."
    told = {"type": type_uri, "title": title, "status": status, "detail": said, "field": field}
    return msgspec.json.encode({**told, **(extra or {})})


def dotted(path: Sequence[str | int]) -> str:
    """Returns a path into a body as people write it: `operations[0].units`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def quoted(value: object, limit: int = 80) -> str:
    """Returns the value as its caller would recognise it, cut after `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def complaint(field: str, error: Any) -> str:
    """Returns a pydantic error in words for the caller. `field`: where, as the caller writes it."""
    what = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "missing":
            return f"{field} is missing"
        case "extra_forbidden":
            return f"{field} is an unknown field"
        case "value_error":
            return f"{field}: {what}"
    return f"{field}: {what}, not {quoted(error.get('input'))}"


_DETAILS = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "field"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:escher:problem:invalid"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The invalid part of the request"},
    },
}


def documented(answers: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Returns problems as FastAPI's `responses` for OpenAPI: each status with its meaning."""
    return {
        status: {"description": meaning, "content": {CONTENT_TYPE: {"schema": _DETAILS}}}
        for status, meaning in answers.items()
    }


ANYWHERE = documented(
    {
        400: "Not HTTP, not JSON, or of the wrong structure",
        408: "The request did not arrive in time",
        413: "The body is too large",
        431: "Request line and headers are too large",
        500: "An internal error of the service; its log has the traceback",
        503: "Not ready, another replica leads, overloaded, or the Kubernetes API server cannot be reached",
    }
)
"""Problems that may answer any call."""
