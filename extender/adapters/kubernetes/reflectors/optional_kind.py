"""Optional kind: follows a kind that a cluster need not have, as soon as the cluster has it.

Only the API server's discovery says that a kind is absent. A refusal or an outage proves nothing: Escher asks again, as
for nodes and pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import structlog

from extender.adapters.kubernetes.reflectors.lost import Lost
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.core.common.backoff import BackOff
from extender.kube.errors import Refused, Unavailable

_log = structlog.get_logger(__name__)

_LOOKS_FIRST, _LOOKS_AT_LAST = 1.0, 60.0
"""Seconds between looks for an absent kind. Short at first: it may be installed with Escher."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds until the next try after a request without an answer; as in a reflector."""
_CHECKS_EVERY = 1.0
_GONE_AFTER, _ASKS_EVERY = 30.0, 5.0
"""Seconds: the time of failures, and then of denials by discovery, until a kind is uninstalled.

An API server that has just started denies it too, for a moment. `_ASKS_EVERY` is the time between two questions.
"""


class OptionalKind:
    """A kind that may be absent. `known` is set once it was listed, or is known to be absent.

    It is also set after `patience` seconds without an answer; then `goes_without` is true.
    """

    def __init__(
        self,
        reflector: Reflector[Any],
        is_there: Callable[[], Awaitable[bool]] | None = None,
        *,
        after: asyncio.Event | None = None,
        patience: float = inf,
        gone_without: Callable[[], object] = lambda: None,
        uninstalled: Callable[[], object] = lambda: None,
    ) -> None:
        """`is_there` raises Unavailable, Refused; None: always there. `after` starts the search."""
        self.there = is_there is None
        """Whether the cluster has the kind, as far as known."""
        self.known = asyncio.Event()
        self.goes_without = False
        self.reflector = reflector
        self.narrows = patience == inf
        """Whether Escher must wait for it, because it narrows what Escher may do."""
        self._is_there = is_there
        self._after = after
        self._patience = patience
        self._gone_without = gone_without
        self._uninstalled = uninstalled
        self._looking = Lost(asyncio.get_running_loop().time)
        """For how long the API server has not said whether it has the kind."""

    @property
    def kind(self) -> str:
        return self.reflector.kind

    @property
    def synced(self) -> asyncio.Event:
        return self.reflector.synced

    @property
    def lost(self) -> Lost:
        """For how long the kind cannot be read, and why."""
        return self.reflector.lost if self.there else self._looking

    @property
    def is_absent(self) -> bool:
        """Whether the API server has said that there is no such kind."""
        return self.known.is_set() and not self.there and not self.goes_without

    def go_without(self) -> None:
        """Makes the kind count as known, without objects, until it can be read."""
        self.goes_without = True
        self._gone_without()
        self.known.set()

    async def run(self) -> None:
        """Follows the kind until cancelled."""
        if self._after is not None:
            await self._after.wait()
        if self._is_there is None:
            await self._follow()
            return
        while True:
            await self._until_there(self._is_there)
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                await self._until_gone(self._is_there)
                following.cancel()
            self.there = self.goes_without = False
            self.reflector.uninstalled()
            self._uninstalled()
            _log.warning("a kind no longer exists: Escher looks for it again", kind=self.kind)

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            await self._until_listed()
            self.known.set()
            await self.reflector.synced.wait()
            self.goes_without = False

    async def _until_gone(self, is_there: Callable[[], Awaitable[bool]]) -> None:
        denied = 0.0
        while denied < _GONE_AFTER:
            await asyncio.sleep(_ASKS_EVERY)
            if self.reflector.lost.seconds < _GONE_AFTER:
                denied = 0.0
                continue
            try:
                denied = 0.0 if await is_there() else denied + _ASKS_EVERY
            except (Unavailable, Refused):
                denied = 0.0

    async def _until_there(self, is_there: Callable[[], Awaitable[bool]]) -> None:
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        looks = _LOOKS_FIRST
        while not self.there:
            try:
                self.there = await is_there()
            except (Unavailable, Refused) as error:
                if str(error) != self._looking.why:
                    _log.warning("cannot check whether a kind exists", kind=self.kind, why=str(error))
                self._looking.failed(str(error))
                if self._looking.seconds >= self._patience and not self.known.is_set():
                    self._lose_patience()
                wait = back_off.failed(error.retry_after if isinstance(error, Unavailable) else None)
            else:
                self._looking.over()
                back_off.succeeded()
                if self.there:
                    break
                self.goes_without = False
                self.known.set()
                wait, looks = looks, min(2 * looks, _LOOKS_AT_LAST)
            await asyncio.sleep(wait)

    async def _until_listed(self) -> None:
        while not self.reflector.synced.is_set():
            if self.reflector.lost.seconds >= self._patience:
                self._lose_patience()
                return
            try:
                async with asyncio.timeout(None if self._patience == inf else _CHECKS_EVERY):
                    await self.reflector.synced.wait()
            except TimeoutError:
                pass

    def _lose_patience(self) -> None:
        _log.warning("a kind cannot be read: continuing without it", kind=self.kind, why=self.lost.why)
        self.go_without()
