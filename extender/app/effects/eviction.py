"""Eviction: carries out eviction orders, one unit at a time, at a limited rate, with least harm.

A *unit* is a pod without a gang, or a gang with all its members, which are evicted together. Before the first eviction
of a unit, the disruption budgets that cover it are read again and counted. The API server counts only one pod at a
time, and a dry run spends nothing. Then each eviction of a unit of several pods is tried as a dry run. Within a unit,
the pods whose eviction is most likely to be refused come first, so that a refusal comes before any pod is gone. Units
follow each other. For one namespace, no unit begins while another is unfinished.

An order may break disruption budgets, if the core found no room otherwise. Then the pods of a unit that the budgets
permit are evicted. The others are deleted after them, with their grace period, as kube-scheduler deletes its victims.
Nothing else is ever deleted, and no other order breaks a budget. Before the first eviction of such an order, each
deletion is tried as a dry run: a right may be missing.

An eviction may be refused after others of the unit succeeded, because other evictions have spent a budget meanwhile. It
is tried again with longer and longer pauses, for `UNFINISHED_SECONDS`. Meanwhile no other member is evicted: an evicted
pod cannot come back, but the remaining members may still be useful. The gang may run with fewer members, or its
controller may complete it again. After that time, or when the preemptor no longer needs the room, the rest stays for
good. Unless the gang is whole again, this is reported by an Event on each pod, by a metric, and by explain.

The namespaces of the preemptors take turns at each unit, and each waits only for its own evictions. The part of the
rate that a try took is given back for pods that were not evicted. The core decides which pods are evicted, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import structlog

from extender.app.contracts.effects import Performer
from extender.app.contracts.ports import Binder, Disruptions, EventType, Evictor, LivePods, Nominator, PodRef
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.eviction_audit import Destroyed, EvictionKind
from extender.app.effects.pod_events_writer import EventRecorder
from extender.app.fair_semaphore import FairSemaphore
from extender.app.unit_check import UnitCheck
from extender.core.cluster import Pod
from extender.core.common.backoff import BackOff
from extender.core.feedback import Evicted, EvictionDone, Feedback, RestStays, UnitStays
from extender.core.gang_of_one import called, called_apart, called_in_full, lone_pod
from extender.core.gangs.state.eviction_orders import EvictRest, KeepRoomFor, LetRoomGo, Preempted
from extender.core.gangs.state.gang import EvictFor
from extender.core.names import GangKey
from extender.core.safety_switches import Act
from extender.core.tenancy.shares import SharedRate
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName, PodUid

_log = structlog.get_logger(__name__)

UNFINISHED_SECONDS = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 20.0
_LOOKS_EVERY = 0.1
_NOMINATES_AGAIN_AFTER = (5.0, 20.0, 60.0)
"""Seconds until a pod that lost its nomination is nominated again; after the last, it is not.

kube-scheduler clears it at each failed try, but not while a victim is about to end on that node.
"""
_ASKED_ABOUT = 16
"""Number of members for which Escher checks, before a unit is evicted, whether they still wait."""
_UNWANTED = "the eviction is no longer needed"

_Start = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(slots=True)
class Share:
    """The namespace for which pods are evicted together, and how many were evicted."""

    namespace: str
    evicted: int = 0


class Evicting:
    """Carries out eviction orders.

    `per_second`: evictions in the long run; those of one unit are made at once. `telling` puts Events on pods, `start`
    runs work in the background. `destroyed(kind, pod, why)` is called when the API server has accepted an eviction.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        binder: Binder,
        evictor: Evictor,
        nominator: Nominator,
        disruptions: Disruptions,
        live_pods: LivePods,
        *,
        per_second: float,
        telling: EventRecorder,
        start: _Start,
        destroyed: Destroyed,
    ) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._evictor = evictor
        self._nominator = nominator
        self._live_pods = live_pods
        self._check = UnitCheck(scheduler.cache, binder, evictor, disruptions)
        self._rate = SharedRate(per_second)
        self._telling = telling
        self._start = start
        self._destroyed = destroyed
        self._next_of_each = FairSemaphore(each=1)
        """Lets one unit of each namespace be next."""
        self._turn = FairSemaphore(at_once=1)
        self._nominated: dict[PodUid, int] = {}
        """How often each pod was nominated again."""
        self._to_nominate: set[PodUid] = set()

    def _told(self, feedback: Feedback) -> None:
        self._performer.do(self._scheduler.on_event(feedback))

    # -- for a gang ----------------------------------------------------------------------------------------------

    def preempt(self, order: EvictFor) -> None:
        """Carries the order out as far as possible, and reports each step to the `Scheduler`."""
        self._start(self._preempt(order))

    async def _preempt(self, order: EvictFor) -> None:
        key, named = order.gang, self._scheduler.cache.gangs.naming.spoken(order.gang)
        try:
            if order.despite_budgets:
                async with self._turn.held(key.namespace):
                    if not await self._all_may_go(order):
                        return
            for unit in order.units:
                async with self.share(key.namespace, len(unit)) as share, self._turn.held(key.namespace):
                    await self._pods_are_followed(key)
                    await self._all_is_known()
                    if not self._scheduler.cache.gangs.waiting.preempting.is_wanted(key):
                        break
                    checks = [self._waits(order)]
                    if unit is order.units[0]:
                        checks.append(self._others_are_bound(order))
                    if not all(await asyncio.gather(*checks)):
                        break
                    evicted = await self._evict(
                        unit,
                        share,
                        f"for {called_in_full(key, named)} of higher priority",
                        "" if unit[0].namespace == key.namespace else f"for {called_apart(key)} of higher priority",
                        wanted=lambda: self._scheduler.cache.gangs.waiting.preempting.is_wanted(key),
                        by="PreemptedByPod" if lone_pod(key) else "PreemptedByGang",
                        begin=lambda: self._announce(order),
                        took=lambda pod: self._told(Evicted(pod, key)),
                        despite_budgets=order.despite_budgets,
                    )
                    if evicted is not None:
                        left, why = evicted
                        self._told(UnitStays(key, unit, left, why))
                        break
        finally:
            self._told(EvictionDone(key))

    async def _waits(self, order: EvictFor) -> bool:
        """Returns whether waiting members exist on the API server: the watch may be silent."""
        try:
            asked = (self._live_pods.lives(PodRef.of(pod)) for pod in order.members[:_ASKED_ABOUT])
            if not all(await asyncio.gather(*asked)):
                _log.info("no pod is evicted: members are gone", gang=str(order.gang))
                return False
        except (Unavailable, Refused) as error:
            _log.warning("no pod is evicted: members cannot be read", gang=str(order.gang), why=str(error))
            return False
        return True

    async def _others_are_bound(self, order: EvictFor) -> bool:
        """Returns whether the API server confirms where each unit after the first is.

        If not, no pod is evicted: the order would not free the room that it counts on. Each unit is confirmed again
        later.
        """
        units = iter(order.units[1:])
        while several := list(islice(units, _ASKED_ABOUT)):
            asked = (self._check.confirm(unit) for unit in several)
            for unit, error in zip(several, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if isinstance(error, Unavailable | Refused):
                    _log.warning("no pod is evicted", gang=str(order.gang), why=str(error))
                    self._told(UnitStays(order.gang, unit, 0, str(error)))
                    return False
                if error is not None:
                    raise error
        return True

    async def _all_may_go(self, order: EvictFor) -> bool:
        """Returns whether each budget-protected pod may be deleted: a right may be missing."""
        why = await self._check.refusal(order.victims)
        if why:
            _log.warning("no pod is evicted: one with a budget cannot be deleted", gang=str(order.gang), why=why)
            self._told(UnitStays(order.gang, order.victims, 0, why))
        return not why

    async def _announce(self, order: EvictFor) -> None:
        """Reports the evictions by Events; nominations make kube-scheduler keep the room."""
        if not self._scheduler.cache.gangs.waiting.preempting.reports(order.gang):
            return
        name = self._scheduler.cache.gangs.naming.of(order.gang)
        note = f"{called(order.gang, name)}: {len(order.victims)} pods of lower priority are evicted for it"
        for pod in order.members:
            self._telling.emit(pod, EventType.NORMAL, "PodPreempts" if lone_pod(order.gang) else "GangPreempts", note)
        await asyncio.gather(
            *(self._nominate(pod, node) for pod in order.members if (node := order.nominated.get(pod.uid)))
        )

    # -- for an ordinary pod -------------------------------------------------------------------------------------

    def follow(self, order: EvictRest) -> None:
        """Evicts the rest of a gang after kube-scheduler has evicted a part of it for a pod."""
        self._start(self._follow(order))

    async def _follow(self, order: EvictRest) -> None:
        named = self._scheduler.cache.gangs.naming.spoken(order.gang)
        is_own = order.preemptor.namespace == order.gang.namespace
        namespace = order.preemptor.namespace
        async with self.share(namespace, len(order.rest)) as share, self._turn.held(namespace):
            await self._all_is_known()
            evicted = await self._evict(
                order.rest,
                share,
                f"with its gang {named}, for pod {order.preemptor} of higher priority",
                "" if is_own else "with its gang, for a pod of higher priority",
                wanted=lambda: self._still_wants(order),
                took=lambda pod: self._told(Evicted(pod)),
                gone=order.gone,
                despite_budgets=order.despite_budgets,
            )
            if evicted is not None:
                left, why = evicted
                self._told(RestStays(order, left, why))

    def _still_wants(self, order: EvictRest) -> bool:
        """Returns whether the preemptor exists, waiting or bound, and safety switches allow it."""
        cache, namespace = self._scheduler.cache, order.preemptor.namespace
        switches, known = cache.safety_switches, cache.pods.get(order.preemptor.uid)
        allowed = not switches.protects(order.gang.namespace) and switches.allows(Act.PREEMPT, namespace)
        return known is not None and not known.deleting and allowed

    def on_event(self, preempted: Preempted) -> None:
        """Records that kube-scheduler has evicted a victim that Escher had allowed."""
        victim, pod = preempted.victim, preempted.preemptor
        self._destroyed(
            EvictionKind.PREEMPTED_BY_POD, victim, f"by kube-scheduler for pod {pod} of priority {pod.priority}"
        )

    # -- a unit --------------------------------------------------------------------------------------------------

    async def _evict(
        self,
        unit: Sequence[Pod],
        share: Share,
        why: str,
        told: str,
        *,
        wanted: Callable[[], bool],
        took: Callable[[Pod], None],
        by: str = "GangPreempted",
        begin: Callable[[], Coroutine[Any, Any, None]] | None = None,
        gone: int = 0,
        despite_budgets: bool = False,
    ) -> tuple[int, str] | None:
        """Evicts the unit; returns None when all have left or are about to.

        Otherwise returns how many have left, and what kept the next. `why` is logged. The pods get `told` instead, if
        it is not empty: it names nothing of another namespace. `by`: the reason of the Event on each pod. `gone`: how
        many others of the unit left before. `despite_budgets`: pods that a budget protects are deleted.
        """
        told = told or why
        protected: dict[PodUid, str] = {}
        pods, objection = await self._check.look(unit, protected if despite_budgets else None)
        if objection and not gone:
            return 0, objection
        pods = pods or [pod for pod in unit if self._check.is_there(pod)]
        size = len(pods) + gone
        left, begun, back_off = gone, False, BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + UNFINISHED_SECONDS
        while pods:
            pod = pods[0]
            budget = protected.get(pod.uid)
            despite = f", despite disruption budget {budget}: no other eviction suffices" if budget is not None else ""
            said = f"{told}{despite}"
            try:
                if not begun:
                    await self._check.confirm(pods)
                    if begin is not None:
                        await begin()
                        begin = None
                    await self._all_is_known()
                if not self._check.is_there(pod):
                    pods.pop(0)
                    continue
                if not begun and not wanted():
                    if left:
                        self._tell_unfinished(pods, left, size, told, _UNWANTED)
                    return left, _UNWANTED
                begun = True
                if pod.uid in protected:
                    await self._evictor.preempt(PodRef.of(pod), f"escher: deleted {said}")
                else:
                    await self._evictor.evict(PodRef.of(pod))
            except Gone:
                pods.pop(0)
            except (Unavailable, Refused) as error:
                _log.warning("a victim cannot be evicted", pod=str(pod), left=left, of=size, why=str(error))
                pause = back_off.failed()
                if not left or loop.time() + pause > give_up:
                    if left:
                        self._tell_unfinished(pods, left, size, told, str(error))
                    return left, str(error)
                async with self._turn.lent(share.namespace):
                    await asyncio.sleep(pause)
                if despite_budgets:
                    # Other evictions may have spent the budget that refused this one.
                    looked, _ = await self._check.look(pods, protected)
                    pods = looked or pods
                # A unit that was begun is finished if nothing prevents it: so the checks are made again.
                begun = False
            else:
                pods.pop(0)
                left += 1
                share.evicted += 1
                back_off.succeeded()
                kind = EvictionKind.PREEMPTED if by == "PreemptedByGang" else EvictionKind.PREEMPTED_BY_POD
                self._telling.emit_done(pod, EventType.WARNING, by, f"evicted {said}")
                self._destroyed(kind, pod, f"{why}{despite}: {left} of a unit of {size}")
                took(pod)
        return None

    async def _pods_are_followed(self, key: GangKey) -> None:
        """Waits until the pod watch is current or the order unwanted; lends its turn meanwhile."""
        cache = self._scheduler.cache
        while not cache.staleness.sees("pods") and cache.gangs.waiting.preempting.is_wanted(key):
            async with self._turn.lent(key.namespace):
                await asyncio.sleep(_LOOKS_EVERY)

    async def _all_is_known(self) -> None:
        """Waits while a list of pods is taken in: evictions are not decided on a part of it."""
        while not self._scheduler.cache.whole:  # noqa: ASYNC110 -- a list is rare, and taken in within seconds
            await asyncio.sleep(_LOOKS_EVERY)

    @asynccontextmanager
    async def share(self, namespace: str, count: int) -> AsyncIterator[Share]:
        """Lets `count` pods leave together for the namespace, as its turn and the rate permit."""
        loop = asyncio.get_running_loop()
        async with self._next_of_each.held(namespace):
            while (wait := self._rate.wait(namespace, loop.time())) > 0:  # noqa: ASYNC110 -- others may spend meanwhile
                await asyncio.sleep(wait)
            await self._all_is_known()
            share = Share(namespace)
            self._rate.spend(namespace, count, loop.time())
            try:
                yield share
            finally:
                self._rate.give_back(namespace, count - share.evicted, loop.time())

    def _tell_unfinished(self, rest: Sequence[Pod], left: int, size: int, why: str, error: str) -> None:
        gang = self._scheduler.cache.gangs.of(rest[0].uid)
        if gang is not None and not gang.needed:
            # Its controller has made it whole again.
            return
        note = f"{left} of {size} members of its gang were evicted {why}; this one could not be evicted: {error}"
        for pod in rest:
            self._telling.emit(pod, EventType.WARNING, "PreemptionUnfinished", note)

    # -- nominations ---------------------------------------------------------------------------------------------

    def keep_room(self, effect: KeepRoomFor) -> None:
        """kube-scheduler has cleared a nomination: writes it again after a pause, a few times."""
        pod = effect.pod
        times = self._nominated.get(pod.uid, 0)
        if pod.uid not in self._to_nominate and times < len(_NOMINATES_AGAIN_AFTER):
            self._nominated[pod.uid] = times + 1
            self._to_nominate.add(pod.uid)
            self._start(self._nominate_again(pod, _NOMINATES_AGAIN_AFTER[times]))

    async def _nominate_again(self, pod: Pod, after: float) -> None:
        await asyncio.sleep(after)
        self._to_nominate.discard(pod.uid)
        known = self._scheduler.cache.pods.get(pod.uid)
        node = self._scheduler.cache.gangs.waiting.preempting.nomination_of(pod)
        if known is not None and known.node is None and known.nominated is None and node is not None:
            await self._nominate(pod, node)

    def ended(self, pod: Pod) -> None:
        """The pod is gone, or has finished: forgets its nominations."""
        self._nominated.pop(pod.uid, None)
        self._to_nominate.discard(pod.uid)

    def let_room_go(self, effect: LetRoomGo) -> None:
        for pod in effect.members:
            self.ended(pod)
            self._start(self._nominate(pod, None))

    async def _nominate(self, pod: Pod, node: NodeName | None) -> None:
        """A failure is only logged: Escher reserves the room too, and a nomination only helps."""
        try:
            await self._nominator.nominate(PodRef.of(pod), node)
        except (Unavailable, Refused) as error:
            _log.info("a nomination cannot be written", pod=str(pod), node=node, why=str(error))
