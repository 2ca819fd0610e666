"""Following: what a controller hears of the store, through the loop and a little later, as an informer tells it.

Knows the order of changes, which it keeps; must not know what a controller does about them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

import structlog

from kubesim.kinds import Kind
from kubesim.store import Change, Store

_log = structlog.get_logger(__name__)

LATE_BY = 0.001
"""Seconds from a write to its news: what a watch on one machine takes."""


class Following:
    """`handle` is called for what is there when `start` is called (as ADDED), and for every change after that.

    `kinds` None: for every change of any kind, and not for what was there before.
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
        """One object that cannot be dealt with keeps nobody from the others."""
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
