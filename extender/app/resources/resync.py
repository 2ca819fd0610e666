"""Resync: deletes ephemeral resources that have ended, and repairs differences.

An ephemeral resource ends with its time to live, or with its owner. It ends at once when the pod is seen to end. If the
pod is not known at all, it ends after a grace period: the pod may be newer than the watch, or a restart may have missed
its end. Escher's data about pods may be late, or from a list that is older than the pod. So before an object is deleted
for a missing owner, the API server is asked about the pod. Claims and other reservations end with their deadlines.
Besides events, a slow full round compares everything: nodes with the ledger, the ledger with the objects, and objects
that only Escher knows with the API server. `objects.expiry` has what ends objects of any kind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

import structlog

from extender.app.cache.cache import Cache
from extender.app.contracts.effects import Performer
from extender.app.contracts.kind import Identity, identity
from extender.app.contracts.ports import EphemeralResource, LivePods, PodOwner, PodRef
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.expiry import ROUND, Expiry, Moment, Work
from extender.app.objects.known import Entry
from extender.app.objects.steps import Change
from extender.app.resources.node_status import WriteBack
from extender.app.resources.set_resource import Resources
from extender.app.resources.set_resource_plan import departed
from extender.core.cluster import Pod
from extender.kube.errors import Unavailable
from extender.kube.names import PodUid

_log = structlog.get_logger(__name__)

_GRACE = 60.0
"""Seconds for which an owner may be unknown."""


def drift_units(cache: Cache) -> int:
    """Returns the units by which the nodes' status differs from what is desired."""
    return sum(max(1, abs(want - said)) for node in cache.nodes.values() for want, said in cache.drift(node).values())


class Resync(Expiry[EphemeralResource]):
    """`grace`: seconds. `is_being_written`: by a transaction not in force. Else see `Expiry`."""

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        resources: Resources,
        write_back: WriteBack,
        pods: LivePods,
        *,
        is_being_written: Callable[[Identity], bool] = lambda name: False,
        grace: float = _GRACE,
        every: float = ROUND,
        each_round: Sequence[Callable[[], None]] = (),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._owned: dict[PodUid, dict[Identity, None]] = {}
        self._owner_of: dict[Identity, PodUid] = {}
        self._without_owner: dict[Identity, tuple[PodUid, float]] = {}
        """Objects whose owner is missing: the owner, and the steady time at which they end."""
        self._scheduler = scheduler
        self._performer = performer
        self._resources = resources
        self._write_back = write_back
        self._pods = pods
        self._is_being_written = is_being_written
        self._grace = grace
        resources.known.listeners.append(self._note_owner)
        super().__init__(
            resources.known, resources.writing, scheduler.cache.clock, every=every, each_round=each_round, chance=chance
        )

    # -- owners ----------------------------------------------------------------------------------------------------

    def _note_owner(self, name: Identity) -> None:
        former = self._owner_of.pop(name, None)
        if former is not None:
            del self._owned[former][name]
            if not self._owned[former]:
                del self._owned[former]
        entry = self._known.get(name)
        if entry is not None and entry.item.owner is not None:
            self._owner_of[name] = entry.item.owner.uid
            self._owned.setdefault(entry.item.owner.uid, {})[name] = None

    def pod_ended(self, pod: Pod) -> None:
        """Ends what the pod owned."""
        for name in list(self._owned.get(pod.uid, ())):
            self._end_for_want_of(pod.uid, name, self.now().steady)
            self.nudge()

    def _end_for_want_of(self, owner: PodUid, name: Identity, when: float) -> None:
        self._without_owner[name] = (owner, when)
        self.calendar.look_at(name, when)

    def consider(self, entry: Entry[EphemeralResource], now: Moment) -> None:
        super().consider(entry, now)
        resource, name = entry.item, identity(entry.item.name)
        owner = resource.owner
        if owner is None or owner.uid in self._scheduler.cache.pods:
            self._without_owner.pop(name, None)
        elif self._without_owner.get(name, ("", 0.0))[0] != owner.uid:
            self._end_for_want_of(owner.uid, name, now.steady + self._grace)

    def forget(self, name: Identity) -> None:
        super().forget(name)
        self._without_owner.pop(name, None)

    def why(self, entry: Entry[EphemeralResource], now: Moment) -> str:
        if (over := super().why(entry, now)) or entry.item.deleting:
            return over
        owner = self._missing_owner(entry, now)
        return "" if owner is None else f"its owner, pod {owner.name}, is gone"

    def _missing_owner(self, entry: Entry[EphemeralResource], now: Moment) -> PodOwner | None:
        """Returns the owner whose absence, as far as is known, makes the object due."""
        owner = entry.item.owner
        if owner is None or owner.uid in self._scheduler.cache.pods:
            return None
        gone, when = self._without_owner.get(identity(entry.item.name), ("", now.steady))
        return owner if gone == owner.uid and when <= now.steady else None

    async def is_sure(self, entry: Entry[EphemeralResource]) -> bool:
        name, owner = identity(entry.item.name), self._missing_owner(entry, self.now())
        if self._is_being_written(name):
            # After the rollback it is what it was before, which may have no end yet.
            raise Unavailable(f"a transaction that is not in force has written {name}", retry_after=1.0)
        if owner is None or not await self._pods.lives(PodRef(name.namespace, owner.name, owner.uid)):
            return True
        _log.info("an owner that seemed to be gone still exists", name=str(name), owner=owner.name)
        self._end_for_want_of(owner.uid, name, self.now().steady + self._grace)
        return False

    # -- more than ends --------------------------------------------------------------------------------------------

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """As `Expiry.run`. `after`: the first lists of nodes, pods and resources.

        Before these, all owners seem to be gone.
        """
        for event in after:
            await event.wait()
        await super().run()

    def more_due(self, steady: float) -> tuple[Iterable[tuple[Identity, Work]], float | None]:
        deadline = self._scheduler.next_deadline()
        if deadline is not None and deadline <= steady:
            self._performer.do(self._scheduler.tick())
        return (), self._scheduler.next_deadline()

    def full_round(self, now: Moment) -> None:
        """Compares everything once, and starts the repair of what differs."""
        for node in self._scheduler.cache.nodes.values():
            if self._scheduler.cache.drift(node):
                self._write_back.advertise(node.name)
        self._write_back.forget_departed()
        if repaired := self._resources.capacities.repair():
            _log.error("the ledger differed from the objects; repaired", resources=repaired)
        for entry in list(self._known.entries()):
            if isinstance(departed(entry, self._scheduler.cache), Change):
                self.start(identity(entry.item.name), self._resources.replace_departed)
        super().full_round(now)
