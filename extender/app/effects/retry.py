"""Insisting: a request is made again until it is answered, with longer pauses from one to the next.

Knows asyncio and the errors of ports; must not know what is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

import structlog

from extender.core.backoff import BackOff
from extender.kube.errors import Unavailable

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_TELLS_AT = 8
"""So many failures in a row are told to people: of those that are usual, few last so long."""


async def until_answered(
    attempt: Callable[[], Awaitable[None]],
    within: float = inf,
    *,
    back_off: BackOff | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    **about: str,
) -> None:
    """It has succeeded, with longer pauses from attempt to attempt, and such as the API server asks for.

    Raises Refused, and Unavailable where the next attempt would come later than `within` seconds.
    """
    loop = asyncio.get_running_loop()
    give_up, back_off = loop.time() + within, back_off or BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            await attempt()
            return
        except Unavailable as error:
            wait = back_off.failed(error.retry_after)
            if loop.time() + wait > give_up:
                raise
            # Once for each outage: all that is to be written may have to wait for the same API server.
            tell = _log.warning if back_off.failures == _TELLS_AT else _log.info
            tell("tried again", **about, why=str(error))
            await sleep(wait)
