"""Errors: why a call was refused, or an ask cannot be met.

Reads RFC 9457 problem details with the service's types of problem. For an unknown type, of a newer service, the HTTP
status decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from escher_k8s.answers import Refusal


class EscherError(Exception):
    """Any error of Escher."""


class Unreachable(EscherError):
    """No answer came: nothing listens there, it took too long, or the server is no Escher service.

    It is unknown whether the call was executed. `set_resource` and `delete_resource` state the desired result, and may
    be repeated.
    """


class Unreached(Unreachable):
    """There was no connection for the call: nothing was executed."""


class Contradiction(EscherError, ValueError):
    """Two asks, or an ask and a pod, that cannot both be met. `field` is where they conflict."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


class Problem(EscherError):
    """The service refused the call, and nothing changed. `str()` names the field and value."""

    def __init__(self, details: Mapping[str, Any], *, retry_after: float | None = None) -> None:
        self.type = str(details.get("type") or "about:blank")
        """Such as `urn:escher:problem:not-found`."""
        self.title = str(details.get("title") or "")
        self.status = int(details["status"])
        self.detail = str(details.get("detail") or self.title)
        self.field: str | None = details.get("field")
        """The invalid part of the request, such as `node_spec`; None if there is none."""
        self.details = dict(details)
        """All members, as received."""
        self.retry_after = retry_after
        """Seconds to wait before a retry, if the service says so."""
        told = self.detail if self.field is None or self.field in self.detail else f"{self.field}: {self.detail}"
        super().__init__(told)


class Invalid(Problem):
    """A value is invalid; `field` names it."""


class NotFound(Problem):
    """The requested object does not exist."""


class BeingDeleted(Problem):
    """The object or its namespace is being deleted: it cannot be set before that is over."""


class NotInForce(Problem):
    """The policy exists but is not in force, or others have set resources of its names."""


class VersionConflict(Problem):
    """It is not at the named version. Read it again, and decide again."""


class QuotaExceeded(Problem):
    """The namespace would have more than its quota; `details["quota"]` has the numbers."""


class OutsideDomain(Problem):
    """The namespace may not touch that node, or that name."""


class Conflict(Problem):
    """Nothing of a transaction was committed; `conflicts` has the reasons."""

    @property
    def conflicts(self) -> list[Refusal]:
        return msgspec.convert(self.details.get("conflicts") or [], list[Refusal])


class Unauthenticated(Problem):
    """The service does not know the caller: it needs a token, or another one; or a certificate."""


class NotAllowed(Problem):
    """The caller lacks a permission; `details["missing"]` names it."""


class Unavailable(Problem):
    """The service is not ready, overloaded, or cannot reach the API server; a retry may work."""


class TooManyCalls(Unavailable):
    """This caller has made too many calls. It may be tried again, after `retry_after`."""


BY_TYPE: Mapping[str, type[Problem]] = {
    "not-http": Invalid,
    "not-json": Invalid,
    "wrong-shape": Invalid,
    "unauthenticated": Unauthenticated,
    "not-allowed": NotAllowed,
    "outside-domain": OutsideDomain,
    "quota-exceeded": QuotaExceeded,
    "not-found": NotFound,
    "wrong-method": Problem,
    "too-slow": Unavailable,
    "conflict": Conflict,
    "not-in-force": NotInForce,
    "being-deleted": BeingDeleted,
    "version-conflict": VersionConflict,
    "too-large": Invalid,
    "invalid": Invalid,
    "head-too-large": Invalid,
    "too-many": TooManyCalls,
    "internal": Problem,
    "not-ready": Unavailable,
    "not-leading": Unavailable,
    "busy": Unavailable,
    "unavailable": Unavailable,
}
"""By the last part of the type's URI."""
_BY_STATUS = {
    400: Invalid,
    401: Unauthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: VersionConflict,
    422: Invalid,
    429: TooManyCalls,
    503: Unavailable,
}


def problem(status: int, reason: str, body: bytes, retry_after: str | None = None) -> Problem:
    """The error of a failed answer. Without problem details (a proxy's, say), by its status."""
    try:
        details = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        details = {"detail": f"the service answers {status} {reason}"}
    named = str(details.get("type") or "").rpartition(":")[2]
    kind = BY_TYPE.get(named) or _BY_STATUS.get(status, Problem)
    pause = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return kind({**details, "status": status}, retry_after=pause)
