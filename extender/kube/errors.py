"""Errors: every way in which a request to the API server can fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_RETRY_AFTER = 30.0
"""Seconds. A longer Retry-After is cut, because due work must not wait for a day."""


_RIGHTS_COME_AFTER = 10.0
"""Seconds. A person or a running installation must grant the rights."""


class Unavailable(Exception):
    """The API server was not reachable, or gave no decision: try again.

    `retry_after`: in how many seconds, if the server gave it; at most LONGEST_RETRY_AFTER.
    """

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = None if retry_after is None else max(0.0, min(retry_after, LONGEST_RETRY_AFTER))


class Refused(Exception):
    """The API server refused the request, and would refuse it again. `status`: the HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Gone(Refused):
    """The object does not exist (404), or is not the intended one (409 on a UID)."""


class Occupied(Refused):
    """The object exists already, or was changed meanwhile (409)."""


class Terminating(Refused):
    """The namespace is being deleted: nothing new can be created in it (403)."""


class Expired(Refused):
    """The resource version or the continue token is too old (410): list again from the start."""


class Away(Unavailable):
    """No API server answered: it is unreachable, hung up, or a proxy reports that it is absent."""


class Silent(Unavailable):
    """A stream was silent for as long as the caller was willing to wait."""


def may_pass(error: Refused) -> bool:
    """Whether the same request would pass with rights that come, or come back, later."""
    return error.status in (401, 403) and not isinstance(error, Terminating)


@contextmanager
def rights_may_come() -> Iterator[None]:
    """Raises Unavailable instead of Refused if rights are missing, so that callers try again."""
    try:
        yield
    except Refused as error:
        if not may_pass(error):
            raise
        raise Unavailable(str(error), _RIGHTS_COME_AFTER) from error


@contextmanager
def asking_for_no_version() -> Iterator[None]:
    """Raises Unavailable for Occupied: such a write named no version, so a retry succeeds."""
    try:
        yield
    except Occupied as error:
        raise Unavailable(str(error)) from error
