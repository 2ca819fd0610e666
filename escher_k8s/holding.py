"""Holding: a resource that is there for as long as somebody holds it, and not for long after.

It is set with a short time to live, and set again each third of that while the block lasts; at the end it is deleted.
Who crashes, or cannot reach the service any more, renews nothing, and the resource goes by itself. Knows threads and
asyncio; must not know the API.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from escher_k8s.errors import EscherError, Problem, Unavailable, Unreachable

R = TypeVar("R")
DEFAULT_TTL = 60.0
"""Seconds."""
_RENEWED_EACH = 3.0
"""Part of the time to live."""


class NotHeld(EscherError):
    """It could not be renewed, and may be gone: the block went on without it. The cause says why."""


@contextmanager
def held(
    put: Callable[[], R],
    delete: Callable[[], object],
    ttl: float,
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> Iterator[R]:
    """What `put` has answered first. Raises NotHeld at the end where it was refused meanwhile.

    `wait`: waits for the event at most so many seconds, and answers whether it is set.
    """
    first = put()
    over, refused = threading.Event(), list[Problem]()

    def renew() -> None:
        while not wait(over, ttl / _RENEWED_EACH):
            try:
                put()
            except (Unreachable, Unavailable):
                continue
            except Problem as error:
                refused.append(error)
                return

    renewing = threading.Thread(target=renew, name="escher-renewal", daemon=True)
    renewing.start()
    try:
        yield first
    finally:
        over.set()
        renewing.join()
        # It goes by itself where that cannot be said.
        with suppress(Unreachable, Unavailable):
            delete()
    if refused:
        raise NotHeld(str(refused[0])) from refused[0]


@asynccontextmanager
async def held_awaited(
    put: Callable[[], Awaitable[R]], delete: Callable[[], Awaitable[object]], ttl: float
) -> AsyncIterator[R]:
    """As `held`."""
    first = await put()

    async def renew() -> None:
        while True:
            await asyncio.sleep(ttl / _RENEWED_EACH)
            try:
                await put()
            except (Unreachable, Unavailable):
                continue

    renewing = asyncio.create_task(renew())
    try:
        yield first
    finally:
        renewing.cancel()
        [outcome] = await asyncio.gather(renewing, return_exceptions=True)
        with suppress(Unreachable, Unavailable):
            await delete()
    if isinstance(outcome, Problem):
        raise NotHeld(str(outcome)) from outcome
