"""Where there: a kind that a cluster need not have, or not let us read, is followed as soon as it can be.

Must not know what the kind is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from extender.adapters.kube.reflector import Reflector
from extender.kube.errors import Refused, Unavailable

_log = structlog.get_logger(__name__)

_LOOK_AGAIN_SECONDS = 60.0
_ASK_AGAIN_SECONDS = 1.0


class WhereThere:
    """`look`: whether the kind can be followed; raises Unavailable, and Refused where it cannot. `without`: what is
    true as long as it cannot. `gone_without` is called when that is so for the first time."""

    def __init__(
        self,
        reflector: Reflector[Any],
        look: Callable[[], Awaitable[bool]],
        without: str,
        *,
        gone_without: Callable[[], object] = lambda: None,
    ) -> None:
        self.there = False
        """Whether it can be followed, as far as is known."""
        self.reflector = reflector
        self._look = look
        self._without = without
        self._gone_without = gone_without
        self._goes_without = False

    @property
    def known(self) -> bool:
        """Whether all that there is of it has been listed, or it was not there when it was looked for first."""
        return self._goes_without or self.reflector.synced.is_set()

    async def run(self) -> None:
        while True:
            if await self._is_there():
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS if self._goes_without else _ASK_AGAIN_SECONDS)
        await self.reflector.run()

    async def _is_there(self) -> bool:
        kind = self.reflector.kind
        try:
            there = await self._look()
        except Refused as error:
            if not self._goes_without:
                _log.warning("a kind cannot be read", kind=kind, without_it=self._without, why=str(error))
            there = False
        except Unavailable as error:
            _log.warning("cannot see whether a kind is there", kind=kind, why=str(error))
            return False
        self.there = there
        if not there and not self._goes_without:
            self._gone_without()
        self._goes_without = self._goes_without or not there
        return there
