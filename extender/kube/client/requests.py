"""Requests: the interface of a connection, and the error for each failed answer.

`connection` implements it, and so does the embedded cluster, in process.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote, urlencode

import msgspec

from extender.kube.errors import Away, Expired, Gone, Occupied, Refused, Terminating, Unavailable

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Accept: an answer to a write without spec and status; a node's would be thousands of bytes."""

TIMEOUT = 30.0
# Part of the error message for a Binding, and for a patch that would change the UID.
_ANOTHER_UID = re.compile(r"UID in precondition|metadata\.uid: Invalid value")

_NAMESPACE_ENDS = "NamespaceTerminating"


_SAID_BY_PROXIES = (502, 503, 504)


class Requests(Protocol):
    """What the reflector and the writers need of a connection."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        """The body of a 2xx answer. Raises Unavailable, Gone, Occupied, Expired, Refused."""
        ...

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of a stream, of any length, without a half line at the end; close it when done.

        Raises as `request`, and Silent after `silence` seconds without a byte.
        """
        ...


class Status(msgspec.Struct):
    """Kubernetes' Status: the API server's description of a failure."""

    class Cause(msgspec.Struct):
        reason: str = ""

    class Details(msgspec.Struct, rename="camel"):
        retry_after_seconds: float | None = None
        causes: list[Status.Cause] | None = None

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    def reasons(self) -> list[str]:
        """The reasons in its details, one word each."""
        return [] if self.details is None else [each.reason for each in self.details.causes or ()]


_statuses = msgspec.json.Decoder(Status)


def refusal(
    status: int, content: bytes, retry_after: str | None = None, date: str | None = None
) -> Unavailable | Refused:
    """The error for a failed answer, in the API server's words. `retry_after`, `date`: headers."""
    try:
        said = _statuses.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = Status(message=content[:300].decode(errors="replace").strip())
        if status in _SAID_BY_PROXIES:
            return Away(said.message or f"HTTP status {status}", _seconds(retry_after, date, said))
    message = said.message or f"HTTP status {status}"
    if status == 401:
        # A 401 says nothing about the object, only about the credentials, which can be renewed.
        return Unavailable(f"the API server does not accept the service's credentials: {message}")
    if status in (408, 429) or status >= 500:
        return Unavailable(message, _seconds(retry_after, date, said))
    if status == 404 or (status in (409, 422) and _ANOTHER_UID.search(message)):
        return Gone(status, message)
    if status == 409:
        return Occupied(status, message)
    if status == 403 and _NAMESPACE_ENDS in said.reasons():
        return Terminating(status, message)
    return Expired(status, message) if status == 410 else Refused(status, message)


def address(*parts: str, query: Mapping[str, str | int] | None = None) -> str:
    """The path of these segments, each quoted, and the query without empty values."""
    path = "/" + "/".join(map(_quoted, parts))
    kept = {key: value for key, value in (query or {}).items() if value != ""}
    return f"{path}?{urlencode(kept)}" if kept else path


@lru_cache(maxsize=1024)
def _quoted(part: str) -> str:
    return quote(part, safe="")


def _moment(header: str) -> float | None:
    """Seconds since the epoch of an HTTP-date; None if it is malformed."""
    try:
        return parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(header: str | None, date: str | None, said: Status) -> float | None:
    if header is not None:
        if header.isascii() and header.isdigit():
            return float(header)
        # Proxies may name a time. It belongs to the clock in their Date header, not to the local one.
        until, now = _moment(header), _moment(date or "")
        if until is not None and now is not None:
            return max(0.0, until - now)
    return said.details.retry_after_seconds if said.details is not None else None
