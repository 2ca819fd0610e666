"""Errors: every way in which a request to the API server can fail. Must not know HTTP's words nor who asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_RETRY_AFTER = 30.0
"""Seconds: who asks for a day, by mistake or not, is asked again sooner. What is due must not wait for a day."""


_RIGHTS_COME_AFTER = 10.0
"""Seconds: a person, or an installation that is under way, has to give them."""


class Unavailable(Exception):
    """The API server could not be asked, or could not say: try again.

    `retry_after`: in how many seconds, where it said so and at most LONGEST_RETRY_AFTER.
    """

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = None if retry_after is None else max(0.0, min(retry_after, LONGEST_RETRY_AFTER))


class Refused(Exception):
    """The API server said no, and would again. `status` is HTTP's."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Gone(Refused):
    """What was addressed is not there (404), or is not the one that was meant (409 on a UID)."""


class Occupied(Refused):
    """It exists already, or changed meanwhile (409)."""


class Terminating(Refused):
    """The namespace is being deleted: nothing new can be made in it (403)."""


class Expired(Refused):
    """The resource version or the continue token is too old (410): list again from the start."""


class Away(Unavailable):
    """No API server answered: none could be reached, it hung up, or something before it says that it is not there."""


class Silent(Unavailable):
    """Nothing came on a stream for as long as the caller was ready to wait."""


def may_pass(error: Refused) -> bool:
    """Whether rights that come, or come back, would let the same request through."""
    return error.status in (401, 403) and not isinstance(error, Terminating)


@contextmanager
def rights_may_come() -> Iterator[None]:
    """What is refused for want of rights is not refused for good: it is tried again. Raises Unavailable then."""
    try:
        yield
    except Refused as error:
        if not may_pass(error):
            raise
        raise Unavailable(str(error), _RIGHTS_COME_AFTER) from error


@contextmanager
def asking_for_no_version() -> Iterator[None]:
    """A write that names no version, and is Occupied all the same, has met other writes: it will do when it is tried
    again. Raises Unavailable then."""
    try:
        yield
    except Occupied as error:
        raise Unavailable(str(error)) from error
