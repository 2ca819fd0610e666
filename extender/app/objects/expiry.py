"""Expiry: deletes objects of a kind that have ended, and asks about those in doubt.

An object ends with its time to live, or for a reason of its kind. The API server is asked about objects that only
Escher knows, or about which a list says less than Escher knows. A slow full round looks at every object again. An
object that is being deleted is left to its finalizers.

`Calendar` decides when to look, with time as an argument; `Expiry` waits for the next moment or a nudge, and acts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Generic

import structlog

from extender.app.contracts.kind import Identity, O, identity
from extender.app.contracts.ports import Clock
from extender.app.fair_semaphore import FairSemaphore
from extender.app.objects.known import Entry, Known
from extender.app.objects.writing import Writing
from extender.core.common.backoff import BackOff
from extender.kube.errors import Refused, Unavailable

_log = structlog.get_logger(__name__)

ROUND = 60.0
"""Seconds between full rounds."""
_AT_MOST = 16
_STALE_AT_MOST = 64
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

Work = Callable[[Identity], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Moment:
    """`steady`: seconds that only ever pass, for everything that Escher has begun.

    `time_of_day`: only to compare with stored times; it may be set forward and back."""

    time_of_day: float
    steady: float

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.now(), clock.steady())


class Calendar:
    """When which object is to be looked at."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, Identity]] = []
        """Steady moments at which an object may be due; outdated ones are found out then."""
        self._expiries: list[tuple[float, Identity]] = []
        """The same for times to live, by the time of day."""
        self._expiring: dict[Identity, float] = {}
        """The last entry of each object in `_expiries`, so that nothing is queued twice."""

    def __len__(self) -> int:
        return len(self._queue) + len(self._expiries)

    def look_at(self, name: Identity, when: float) -> None:
        """The object may be due at this steady moment."""
        heappush(self._queue, (when, name))

    def expires(self, name: Identity, when: float) -> None:
        """The object is due at this time of day."""
        if self._expiring.get(name) == when:
            return
        self._expiring[name] = when
        heappush(self._expiries, (when, name))
        if len(self._expiries) > _STALE_AT_MOST + 2 * len(self._expiring):
            # Each renewal leaves an entry, which would stay for as long as a time to live may be.
            self._expiries = [(when, each) for each, when in self._expiring.items()]
            heapify(self._expiries)

    def forget(self, name: Identity) -> None:
        self._expiring.pop(name, None)

    def wait(self, now: Moment) -> float | None:
        """In how many seconds `take` may have something; None: nothing is queued."""
        waits = [queue[0][0] - by for queue, by in self._queues(now) if queue]
        return min(waits, default=None)

    def take(self, now: Moment) -> list[Identity]:
        """The objects that may be due, each once."""
        found: dict[Identity, None] = {}
        for queue, by in self._queues(now):
            while queue and queue[0][0] <= by:
                when, name = heappop(queue)
                found[name] = None
                if queue is self._expiries and self._expiring.get(name) == when:
                    # If the clock is set back before the object has ended, a full round puts it on the calendar again.
                    self._expiring.pop(name, None)
        return list(found)

    def _queues(self, now: Moment) -> Sequence[tuple[list[tuple[float, Identity]], float]]:
        return ((self._queue, now.steady), (self._expiries, now.time_of_day))


class Expiry(Generic[O]):
    """`each_round`: what else to look at again in each full round. `chance`: numbers from 0 to 1.

    A kind that has more reasons, or more to do, overrides `consider`, `forget`, `why`, `is_sure` and `more_due`."""

    def __init__(
        self,
        known: Known[O],
        writing: Writing[O, Any],
        clock: Clock,
        *,
        every: float = ROUND,
        each_round: Sequence[Callable[[], None]] = (),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.calendar = Calendar()
        self._known = known
        self._writing = writing
        self._clock = clock
        self._every = every
        self._each_round = each_round
        self._chance = chance
        self._nudged = asyncio.Event()
        self._free = FairSemaphore(_AT_MOST)
        self._group: asyncio.TaskGroup | None = None
        self._back_offs: dict[Identity, BackOff] = {}
        self._busy: set[Identity] = set()
        known.listeners.append(self._hear)

    # -- deciding --------------------------------------------------------------------------------------------------

    def consider(self, entry: Entry[O], now: Moment) -> None:
        """The object is new, changed or looked at again: puts its end on the calendar."""
        name = identity(entry.item.name)
        if entry.item.expires_at is not None:
            self.calendar.expires(name, entry.item.expires_at)
        if self._writing.is_stray(entry):
            self.calendar.look_at(name, now.steady)

    def forget(self, name: Identity) -> None:
        self.calendar.forget(name)
        self._back_offs.pop(name, None)

    def why(self, entry: Entry[O], now: Moment) -> str:
        """Why the object is due, in words; empty if it is not."""
        ends = entry.item.expires_at
        if entry.item.deleting:
            return ""
        if self._writing.is_stray(entry):
            return "its creation was given up, or arrived again after the deletion"
        return "its time to live has expired" if ends is not None and ends <= now.time_of_day else ""

    async def is_sure(self, entry: Entry[O]) -> bool:
        """Whether an object that is due really ends. Raises Unavailable, Refused."""
        return True

    def more_due(self, steady: float) -> tuple[Iterable[tuple[Identity, Work]], float | None]:
        """Other work by object, and the steady moment at which there may be more."""
        return (), None

    # -- doing -----------------------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """A deadline may have been set: makes the loop look."""
        self._nudged.set()

    def _hear(self, name: Identity) -> None:
        entry = self._known.get(name)
        if entry is None:
            self.forget(name)
            if name in self._known.doubtful:
                self.nudge()
        elif self._group is not None:
            now = self.now()
            before = self.calendar.wait(now)
            self.consider(entry, now)
            if name in self._known.doubtful or self.calendar.wait(now) != before:
                self.nudge()

    def now(self) -> Moment:
        return Moment.of(self._clock)

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Collects and repairs until it is cancelled, once every event of `after` is set.

        They are the first lists of all that ends are decided on: before them, every object would seem to be gone."""
        for event in after:
            await event.wait()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._loop()
            finally:
                self._group = None
                self._busy.clear()

    async def _loop(self) -> None:
        next_round = self._clock.steady()
        while True:
            self._nudged.clear()
            if next_round <= self._clock.steady():
                self.full_round(self.now())
                next_round = self._clock.steady() + self._every
            more, moment = self.more_due(self._clock.steady())
            for name in self.calendar.take(self.now()):
                self.start(name, self._collect)
            for name, work in more:
                self.start(name, work)
            for name in list(self._known.doubtful):
                self.start(name, self._writing.ask_about)
            wait = (next_round if moment is None else min(moment, next_round)) - self._clock.steady()
            if (end := self.calendar.wait(self.now())) is not None:
                wait = min(wait, end)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait)):
                    await self._nudged.wait()

    def full_round(self, now: Moment) -> None:
        """Looks at every object again."""
        for entry in list(self._known.entries()):
            self.consider(entry, now)
        self._known.doubt_unechoed(now.steady - self._every)
        for look in self._each_round:
            look()

    def start(self, name: Identity, work: Work) -> None:
        """Starts the work, unless work on the object is under way. Failed work is tried again."""
        if self._group is not None and name not in self._busy:
            self._busy.add(name)
            self._group.create_task(self._one(name, work))

    async def _one(self, name: Identity, work: Work) -> None:
        try:
            async with self._free.held(name.namespace):
                await work(name)
            self._back_offs.pop(name, None)
        except (Unavailable, Refused) as error:
            back_off = self._back_offs.setdefault(name, BackOff(_FIRST_PAUSE, _LONGEST_PAUSE, self._chance))
            wait = back_off.failed(error.retry_after if isinstance(error, Unavailable) else None)
            _log.warning("tried again later", name=str(name), seconds=round(wait, 1), why=str(error))
            await asyncio.sleep(wait)
        self._busy.discard(name)
        entry, now = self._known.get(name), self.now()
        if entry is not None and self.why(entry, now):
            self.calendar.look_at(name, now.steady)
        self.nudge()

    async def _collect(self, name: Identity) -> None:
        entry = self._known.get(name)
        if entry is not None and self.why(entry, self.now()) and await self.is_sure(entry):
            await self._writing.collect(name, lambda there: self.why(there, self.now()))
