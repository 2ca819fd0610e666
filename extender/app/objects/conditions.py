"""Conditions: writes what the status of each object of a kind says about it.

What is wrong with an object is written in its Ready condition and goes no further. The kind decides what is to be said
(`Reports`), apart from writing it. A status that can wait is written a little later than others: most such objects live
shortly, and a second write for each would be wasted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol

import structlog

from extender.app.contracts.kind import Identity, O, O_contra, ObjectStore, S, Status, identity
from extender.app.fair_semaphore import FairSemaphore
from extender.app.objects.known import Known
from extender.app.objects.retry import until_answered
from extender.core.common.backoff import BackOff
from extender.kube.errors import Gone, Refused, rights_may_come

_log = structlog.get_logger(__name__)

_WELL_AFTER = 5.0
"""Seconds after which an object that is well is reported to be, if that can wait."""
_AT_MOST = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


class Reports(Protocol[O_contra, S]):
    """Decides what the status of a kind's objects says, from known facts alone. Pure."""

    def judge(self, item: O_contra) -> S | None:
        """What the object's status should say now; None if it should say nothing."""
        ...

    def is_as_said(self, item: O_contra, status: S) -> bool:
        """Whether the object's status says what `status` would, beside the Ready condition."""
        ...

    def can_wait(self, item: O_contra) -> bool:
        """Whether it does no harm to report a little later that the object is well."""
        ...

    def may_differ(self, item: O_contra, said: Status | None) -> bool:
        """Whether another status may be due since `said`, though the object has not changed."""
        ...


class Conditions(Generic[O, S]):
    """Hears every change of the known objects. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        known: Known[O],
        store: ObjectStore[O, Any, S],
        reports: Reports[O, S],
        *,
        at_most: int = _AT_MOST,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._known = known
        self._store = store
        self._reports = reports
        self._chance = chance
        self._free = FairSemaphore(at_most)
        self._group: asyncio.TaskGroup | None = None
        self._timers: dict[Identity, asyncio.TimerHandle] = {}
        self._writing: set[Identity] = set()
        self._said: dict[Identity, tuple[str, int, S]] = {}
        """The status written last, with the uid and the generation of its object."""
        known.listeners.append(self.hear)
        known.rewound.append(self._forget)

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Reports until it is cancelled, once every event of `after` is set.

        They are the first lists of all that is looked at: a judgement before them would rest on too little."""
        for event in after:
            await event.wait()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for entry in list(self._known.entries()):
                    self.hear(identity(entry.item.name))
                await asyncio.Event().wait()
            finally:
                self._group = None
                for timer in self._timers.values():
                    timer.cancel()
                self._timers.clear()
                self._writing.clear()

    def look_again(self) -> None:
        """Judges again what may be due to something else than a change of the object."""
        for entry in list(self._known.entries()):
            name = identity(entry.item.name)
            if self._reports.may_differ(entry.item, self._said[name][2] if name in self._said else None):
                self.hear(name)

    def _forget(self, name: Identity) -> None:
        # The status of an object from before a restore is the one that was written then.
        self._said.pop(name, None)

    def hear(self, name: Identity) -> None:
        """The object is new, changed or gone: writes its status if that should change."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if self._known.get(name) is None:
            self._said.pop(name, None)
        elif self._group is not None and name not in self._writing and (news := self._news(name)) is not None:
            item, status = news
            can_wait = status.ready and name not in self._said and self._reports.can_wait(item)
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(_WELL_AFTER if can_wait else 0.0, self._start, name)

    def _news(self, name: Identity) -> tuple[O, S] | None:
        """The object, and what its status should say; None if it says so already."""
        entry = self._known.get(name)
        status = None if entry is None or entry.item.deleting else self._reports.judge(entry.item)
        if entry is None or status is None:
            return None
        item, said = entry.item, self._said.get(name)
        if said is not None:
            return None if said == (item.uid, item.generation, status) else (item, status)
        # An earlier run may have said that an object is well. That it is not is said again: the reason may be another.
        is_said = item.observed_generation == item.generation and status.ready and not item.said_unready
        return None if is_said and self._reports.is_as_said(item, status) else (item, status)

    def _start(self, name: Identity) -> None:
        del self._timers[name]
        if self._group is not None:
            self._writing.add(name)
            self._group.create_task(self._write(name))

    async def _write(self, name: Identity) -> None:
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE, self._chance)
        await until_answered(lambda: self._say(name), back_off=back_off, what="status", name=str(name))
        self._writing.discard(name)

    async def _say(self, name: Identity) -> None:
        while (news := self._news(name)) is not None:
            item, status = news
            try:
                async with self._free.held(item.name.namespace):
                    asked = self._known.asking(name)
                    with rights_may_come():
                        stored = await self._store.set_status(item, status)
            except Gone:
                now = self._known.get(name)
                if now is not None and now.item.uid != item.uid:
                    continue
                if now is not None:
                    # The watch will report it. If it does not, the object is asked about.
                    self._known.doubtful[name] = None
                return
            except Refused as error:
                _log.error("the API server refuses a status", name=str(name), why=str(error))
                self._said[name] = (item.uid, item.generation, status)
                return
            self._said[name] = (item.uid, item.generation, status)
            self._known.set_stored(stored, asked)
