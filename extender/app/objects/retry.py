"""Retry: makes a request again until it is answered, with longer and longer pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

import structlog

from extender.core.common.backoff import BackOff
from extender.kube.errors import Unavailable

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_TELLS_AT = 8
"""The failure in a row at which a warning is logged: usual outages are mostly shorter."""


async def until_answered(
    attempt: Callable[[], Awaitable[None]],
    within: float = inf,
    *,
    back_off: BackOff | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    **about: str,
) -> None:
    """Returns when `attempt` has succeeded. Pauses grow; the API server may ask for longer ones.

    Raises Refused, and Unavailable if the next attempt would come later than `within` seconds.
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
            # Once an outage: all writes may have to wait for the same API server.
            tell = _log.warning if back_off.failures == _TELLS_AT else _log.info
            tell("tried again", **about, why=str(error))
            await sleep(wait)
