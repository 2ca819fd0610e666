"""Holding: a resource that exists while a process holds it, and not for long after.

It is created with a short time to live, if there is none of that name. While the block lasts, it is set again each
third of that time; at the end it is deleted. After a crash, or without the service, nothing renews it and it expires.
From then on, another process that creates one of that name owns it. This block then neither sets nor deletes it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol, TypeVar

from escher_k8s.errors import EscherError, Problem, Unavailable, Unreachable, VersionConflict

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
DEFAULT_TTL = 60.0
"""Seconds."""
_RENEWED_EACH = 3.0
"""Renewals in one time to live."""


class NotHeld(EscherError):
    """It was not renewed, and may be gone: the block went on without it. The cause says why."""


class Put(Protocol[R_co]):
    def __call__(self, *, if_absent: bool) -> R_co:
        """Sets it. Raises VersionConflict if it exists and `if_absent` is true."""
        ...


class _Lease:
    """Whether the resource is owned: for one time to live after an answered renewal was sent."""

    def __init__(self, ttl: float, clock: Callable[[], float]) -> None:
        self._ttl = ttl
        self._clock = clock
        self._renewed = self._asked = clock()
        self.refused: Problem | None = None

    def renews(self) -> bool:
        """Notes that a renewal is sent now. Returns whether the resource must be absent."""
        self._asked = self._clock()
        return self._lapsed(self._asked)

    def renewed(self) -> None:
        """The last request was answered."""
        self._renewed = self._asked

    def is_ours(self) -> bool:
        return not isinstance(self.refused, VersionConflict) and not self._lapsed(self._clock())

    def _lapsed(self, now: float) -> bool:
        return now - self._renewed >= self._ttl


@contextmanager
def held(
    put: Put[R],
    delete: Callable[[], object],
    ttl: float,
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[R]:
    """Yields the first answer of `put`. Raises as `put`, and NotHeld at the end if it was refused.

    `wait`: waits for the event at most the given seconds, and returns whether it is set.
    """
    lease = _Lease(ttl, clock)
    first = put(if_absent=True)
    over = threading.Event()

    def renew() -> None:
        while not wait(over, ttl / _RENEWED_EACH):
            try:
                put(if_absent=lease.renews())
            except (Unreachable, Unavailable):
                continue
            except Problem as error:
                lease.refused = error
                return
            lease.renewed()

    renewing = threading.Thread(target=renew, name="escher-renewal", daemon=True)
    renewing.start()
    try:
        yield first
    finally:
        over.set()
        renewing.join()
        # If the service cannot be reached, the resource expires.
        with suppress(Unreachable, Unavailable):
            if lease.is_ours():
                delete()
    if lease.refused is not None:
        raise NotHeld(str(lease.refused)) from lease.refused


@asynccontextmanager
async def held_awaited(put: Put[Awaitable[R]], delete: Callable[[], Awaitable[object]], ttl: float) -> AsyncIterator[R]:
    """As `held`."""
    lease = _Lease(ttl, asyncio.get_running_loop().time)
    first = await put(if_absent=True)

    async def renew() -> None:
        while True:
            await asyncio.sleep(ttl / _RENEWED_EACH)
            try:
                await put(if_absent=lease.renews())
            except (Unreachable, Unavailable):
                continue
            except Problem as error:
                lease.refused = error
                return
            lease.renewed()

    renewing = asyncio.create_task(renew())
    try:
        yield first
    finally:
        renewing.cancel()
        [defect] = await asyncio.gather(renewing, return_exceptions=True)
        with suppress(Unreachable, Unavailable):
            if lease.is_ours():
                await delete()
    if isinstance(defect, Exception):
        raise defect
    if lease.refused is not None:
        raise NotHeld(str(lease.refused)) from lease.refused
