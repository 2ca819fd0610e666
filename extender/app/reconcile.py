"""Reconcile: what should not be there any more is collected, and what differs is repaired, from full state.

An ephemeral resource ends with its time to live, or with its owner: at once when the pod is seen to end, after a grace
period when the pod is not known at all (it may be ahead of our watch, or a restart may have missed its end). What we
know of pods may be late, or from a list that is older than the pod: before an object ends for want of an owner, the API
server is asked about the pod. Claims and
other reservations end with their deadlines. What is left of a transaction that
nobody is at any more is taken back (`app.intents`). Beside what events tell, a slow full round compares everything:
nodes with the ledger, the ledger with the objects, and objects that only we know of with the API server.

`Ends` decides, with time as an argument; `Reconcile` waits for the next deadline or a nudge, and does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import structlog

from extender.app.catalog import Catalog, Entry, Identity, identity
from extender.app.keeper import Keeper
from extender.app.ports import Clock, Owners, PodOwner, PodRef, Refused, Unavailable
from extender.app.resources import Resources
from extender.app.steps import Change, departed
from extender.app.write_back import WriteBack
from extender.core.cluster import Pod
from extender.core.names import PodUid

_log = structlog.get_logger(__name__)

GRACE = 60.0
"""Seconds for which an owner may be unknown."""
ROUND = 60.0
"""Seconds between full rounds."""
_AT_MOST = 16
_STALE_AT_MOST = 64
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


def drift_units(keeper: Keeper) -> int:
    """By how many units the nodes' status differs from what is desired of our domain."""
    return sum(
        max(1, abs(desired - said)) for node in keeper.nodes.values() for desired, said in keeper.drift(node).values()
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """`time_of_day`: what stored times are compared with, and nothing else; it may be set forward and back. `steady`:
    seconds that only ever pass, for everything that we have begun ourselves."""

    time_of_day: float
    steady: float

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.now(), clock.steady())


class Ends:
    """When objects end. `living`: the pods that have not. `is_void`: of which marks objects are strays."""

    def __init__(
        self, living: Mapping[PodUid, Pod], grace: float = GRACE, is_void: Callable[[str], bool] = lambda mark: False
    ) -> None:
        self._living = living
        self._grace = grace
        self._is_void = is_void
        self._queue: list[tuple[float, Identity]] = []
        """Steady moments at which an object may be due: those that have come to nothing are found out then."""
        self._expiries: list[tuple[float, Identity]] = []
        """The same for times to live, by the time of day."""
        self._expiring: dict[Identity, float] = {}
        """What `_expiries` has of an object last, so that nothing is queued twice."""
        self._without_owner: dict[Identity, tuple[PodUid, float]] = {}
        """Objects whose owner is not there: who that is, and at which steady moment they end."""

    def consider(self, entry: Entry, now: Moment) -> None:
        """The object is new, changed or looked at again: its end is on the calendar."""
        resource, name = entry.resource, identity(entry.resource.name)
        if resource.expires_at is not None and self._expiring.get(name) != resource.expires_at:
            self._expiring[name] = resource.expires_at
            heappush(self._expiries, (resource.expires_at, name))
            if len(self._expiries) > _STALE_AT_MOST + 2 * len(self._expiring):
                # Each renewal leaves one, which would stay for as long as a time to live may be.
                self._expiries = [(when, each) for each, when in self._expiring.items()]
                heapify(self._expiries)
        if self._is_void(resource.mark):
            heappush(self._queue, (now.steady, name))
        owner = resource.owner
        if owner is None or owner.uid in self._living:
            self._without_owner.pop(name, None)
        elif self._without_owner.get(name, ("", 0.0))[0] != owner.uid:
            self._end_for_want_of(owner.uid, name, now.steady + self._grace)

    def orphan(self, name: Identity, owner: PodUid, now: Moment) -> None:
        """The object's owner is seen to have ended."""
        self._end_for_want_of(owner, name, now.steady)

    def spare(self, name: Identity, owner: PodUid, now: Moment) -> None:
        """The object's owner lives, though we do not know it: a grace period begins."""
        self._end_for_want_of(owner, name, now.steady + self._grace)

    def _end_for_want_of(self, owner: PodUid, name: Identity, when: float) -> None:
        self._without_owner[name] = (owner, when)
        heappush(self._queue, (when, name))

    def forget(self, name: Identity) -> None:
        """The object is gone."""
        self._without_owner.pop(name, None)
        self._expiring.pop(name, None)

    def again(self, name: Identity, now: Moment) -> None:
        """The object is looked at once more, at the next `take`."""
        heappush(self._queue, (now.steady, name))

    def wait(self, now: Moment) -> float | None:
        """In how many seconds `take` may have something."""
        waits = [queue[0][0] - by for queue, by in self._calendars(now) if queue]
        return min(waits, default=None)

    def take(self, now: Moment) -> list[Identity]:
        """The objects that may be due, each once."""
        found: dict[Identity, None] = {}
        for queue, by in self._calendars(now):
            while queue and queue[0][0] <= by:
                when, name = heappop(queue)
                found[name] = None
                if queue is self._expiries and self._expiring.get(name) == when:
                    # Should the clock be set back before it has ended, it is on the calendar again after a round.
                    self._expiring.pop(name, None)
        return list(found)

    def _calendars(self, now: Moment) -> Sequence[tuple[list[tuple[float, Identity]], float]]:
        return ((self._queue, now.steady), (self._expiries, now.time_of_day))

    def why(self, entry: Entry, now: Moment) -> str:
        """Why the object is due, in words; empty if it is not."""
        resource = entry.resource
        if resource.deleting:
            return ""
        if self._is_void(resource.mark):
            return "it came of a call that had been given up"
        if resource.expires_at is not None and resource.expires_at <= now.time_of_day:
            return "its time to live is over"
        owner = self.missing_owner(entry, now)
        return "" if owner is None else f"its owner, pod {owner.name}, is gone"

    def missing_owner(self, entry: Entry, now: Moment) -> PodOwner | None:
        """The owner for want of whom, as far as we know, the object is due."""
        owner = entry.resource.owner
        if owner is None or owner.uid in self._living:
            return None
        gone, when = self._without_owner.get(identity(entry.resource.name), ("", now.steady))
        return owner if gone == owner.uid and when <= now.steady else None


class Reconcile:
    """`each_round`: what else is to be looked at again in each full round. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        keeper: Keeper,
        resources: Resources,
        write_back: WriteBack,
        owners: Owners,
        *,
        grace: float = GRACE,
        every: float = ROUND,
        each_round: Sequence[Callable[[], None]] = (),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._keeper = keeper
        self._resources = resources
        self._catalog: Catalog = resources.catalog
        self._write_back = write_back
        self._owners = owners
        self._every = every
        self._each_round = each_round
        self._chance = chance
        self._ends = Ends(keeper.pods, grace, resources.marks.is_void)
        self._nudged = asyncio.Event()
        self._free = asyncio.Semaphore(_AT_MOST)
        self._group: asyncio.TaskGroup | None = None
        self._pauses: dict[Identity, float] = {}
        self._busy: set[Identity] = set()
        self._catalog.listeners.append(self._hear)

    def nudge(self) -> None:
        """A deadline may have been set: the loop looks."""
        self._nudged.set()

    def pod_ended(self, pod: Pod) -> None:
        """What the pod owned ends."""
        for name in self._catalog.owned_by(pod.uid):
            self._ends.orphan(name, pod.uid, self._now())
            self.nudge()

    def _hear(self, name: Identity) -> None:
        entry = self._catalog.get(name)
        if entry is None:
            self._ends.forget(name)
            self._pauses.pop(name, None)
            if name in self._catalog.doubtful:
                self.nudge()
        elif self._group is not None:
            now = self._now()
            before = self._ends.wait(now)
            self._ends.consider(entry, now)
            if name in self._catalog.doubtful or name in self._catalog.intents or self._ends.wait(now) != before:
                self.nudge()

    def _now(self) -> Moment:
        return Moment.of(self._keeper.clock)

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Collects and repairs until it is cancelled, once every event of `after` is set.

        They are the first lists of nodes, pods and resources: before, every owner would seem to be gone.
        """
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
        clock, intents = self._keeper.clock, self._resources.intents
        next_round = intents.began = clock.steady()
        while True:
            self._nudged.clear()
            if next_round <= clock.steady():
                self.full_round(self._now())
                next_round = clock.steady() + self._every
            deadline = self._keeper.next_deadline()
            if deadline is not None and deadline <= clock.steady():
                self._keeper.tick()
            for name in self._ends.take(self._now()):
                self._start(name, self._collect(name))
            for name in intents.due(clock.steady()):
                self._start(name, intents.resolve(name))
            for name in list(self._catalog.doubtful):
                self._start(name, self._make_sure(name))
            moments = [next_round, self._keeper.next_deadline(), intents.next_due(clock.steady())]
            wait = min(moment for moment in moments if moment is not None) - clock.steady()
            if (end := self._ends.wait(self._now())) is not None:
                wait = min(wait, end)
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    def full_round(self, now: Moment) -> None:
        """Everything is compared with everything once, and what differs is on its way to be mended."""
        for node in self._keeper.nodes.values():
            if self._keeper.drift(node):
                self._write_back.advertise(node.name)
        self._write_back.forget_departed()
        if repaired := self._catalog.repair():
            _log.error("the ledger differed from the objects; repaired", resources=repaired)
        for entry in list(self._catalog.entries()):
            self._ends.consider(entry, now)
            if isinstance(departed(entry, self._keeper), Change):
                name = identity(entry.resource.name)
                self._start(name, self._resources.replace_departed(name))
        self._catalog.doubt_unechoed(self._keeper.clock.steady() - self._every)
        for look in self._each_round:
            look()

    # -- doing ---------------------------------------------------------------------------------------------------

    def _start(self, name: Identity, work: Coroutine[Any, Any, None]) -> None:
        if self._group is None or name in self._busy:
            work.close()
            return
        self._busy.add(name)
        self._group.create_task(self._one(name, work))

    async def _one(self, name: Identity, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._free:
                await work
            self._pauses.pop(name, None)
        except (Unavailable, Refused) as error:
            pause = self._pauses.get(name, _FIRST_PAUSE)
            self._pauses[name] = min(2 * pause, _LONGEST_PAUSE)
            asked = error.retry_after if isinstance(error, Unavailable) else None
            wait = max(pause * (1 + self._chance()) / 2, asked or 0.0)
            _log.warning("tried again later", name="/".join(name), seconds=round(wait, 1), why=str(error))
            await asyncio.sleep(wait)
        self._busy.discard(name)
        entry, now = self._catalog.get(name), self._now()
        if entry is not None and self._ends.why(entry, now):
            self._ends.again(name, now)
        self.nudge()

    async def _collect(self, name: Identity) -> None:
        entry = self._catalog.get(name)
        why = "" if entry is None else self._ends.why(entry, self._now())
        if entry is None or not why:
            return
        owner = self._ends.missing_owner(entry, self._now())
        if owner is not None and await self._owners.lives(PodRef(name[0], owner.name, owner.uid)):
            _log.info("an owner lives that seemed to be gone", name="/".join(name), owner=owner.name)
            self._ends.spare(name, owner.uid, self._now())
            return
        await self._resources.collect(name, lambda now: bool(self._ends.why(now, self._now())), why)

    async def _make_sure(self, name: Identity) -> None:
        async with self._resources.locks.hold([name]):
            if name in self._catalog.doubtful:
                await self._resources.refresh(name)
