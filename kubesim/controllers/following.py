"""Following: delivers changes of the store to a controller, a little later, like an informer.

It keeps the order of changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

import structlog

from kubesim.apiserver.machinery.store import Change, Store
from kubesim.kinds import Kind

_log = structlog.get_logger(__name__)

LATE_BY = 0.001
"""Seconds from a write to its delivery: the delay of a watch on one machine."""


class Following:
    """Calls `handle` for existing objects at `start` (as ADDED), and for every later change.

    `kinds` None: for later changes of every kind, not for existing objects.
    """

    def __init__(
        self,
        store: Store,
        kinds: Collection[Kind] | None,
        handle: Callable[[Change], None],
        *,
        late_by: float = LATE_BY,
    ) -> None:
        self._store = store
        self._kinds = None if kinds is None else tuple(kinds)
        self._handle = handle
        self._late_by = late_by
        self._news: deque[tuple[float, Change]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        for kind in self._kinds or ():
            for found in self._store.list(kind):
                version = int(found["metadata"]["resourceVersion"])
                self._hand(Change("ADDED", kind, found, version, None))
        self._unsubscribe = self._store.subscribe(self._hear)

    def stop(self) -> None:
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()

    def _hear(self, change: Change) -> None:
        if self._kinds is None or change.kind in self._kinds:
            self._news.append((asyncio.get_running_loop().time() + self._late_by, change))
            self._set_timer()

    def _hand(self, change: Change) -> None:
        """Handles a change; an error for one object does not affect the others."""
        try:
            self._handle(change)
        except Exception:
            _log.exception("news of an object could not be dealt with", kind=change.kind.name, object=change.key)

    def _set_timer(self) -> None:
        if self._timer is None and self._news:
            self._timer = asyncio.get_running_loop().call_at(self._news[0][0], self._tell)

    def _tell(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._news and self._news[0][0] <= now:
            self._hand(self._news.popleft()[1])
        self._set_timer()
