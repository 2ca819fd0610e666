"""Effects: carries out what the `Scheduler` has decided. No other module does.

It decides nothing about placement. Long work runs in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from extender.app.contracts.effects import (
    AdvertiseCapacity,
    AskRefused,
    BindAnswered,
    Decided,
    Effect,
    PodEnded,
    PolicyFailed,
    WaitTold,
)
from extender.app.contracts.ports import (
    Binder,
    Disruptions,
    EventType,
    Evictor,
    LivePods,
    Nominator,
    PodRef,
    Recorder,
    Waker,
)
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.eviction import Evicting
from extender.app.effects.eviction_audit import Destroyed, EvictionKind, logged
from extender.app.effects.permit_gates import PermitGates
from extender.app.effects.pod_events_writer import EventRecorder
from extender.app.effects.timer import Timer
from extender.app.observability.flight_recorder import FlightRecorder
from extender.app.pod_edits import PodEdits
from extender.app.unit_check import confirm
from extender.core.cluster import Pod
from extender.core.feedback import NotEvicted
from extender.core.gang_of_one import called, lone_pod
from extender.core.gangs.state.eviction_orders import EvictRest, KeepRoomFor, LetRoomGo, Preempted
from extender.core.gangs.state.gang import (
    DeadlineSet,
    EvictFor,
    EvictMembers,
    GangBound,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    GangTurnedAway,
    OpenBarrier,
    RoomSaved,
    TurnBack,
    TurnLost,
    VoidAttempts,
    WakePod,
)
from extender.core.gangs.state.partial_gangs import Proof
from extender.core.names import GangKey
from extender.core.safety_switches import Act, Withheld
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName

_log = structlog.get_logger(__name__)

_DEFECTS_TOLD = 64
T = TypeVar("T")


class Effects:
    """The only `Performer`. `gates`: where binds wait until an effect lets them through.

    `announced` gets every effect; `advertise` the nodes whose status is to be written; `ended` the pods that have
    ended; `placed` the seconds that a gang took; `destroyed` each evicted pod, and why; `withheld` what a safety switch
    holds back.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        binder: Binder,
        waker: Waker,
        evictor: Evictor,
        recorder: Recorder,
        *,
        nominator: Nominator,
        disruptions: Disruptions,
        live_pods: LivePods,
        flight_recorder: FlightRecorder,
        gates: PermitGates,
        announced: Callable[[Effect], None] = lambda effect: None,
        advertise: Callable[[NodeName], None] = lambda node: None,
        ended: Callable[[Pod], None] = lambda pod: None,
        placed: Callable[[float], None] = lambda seconds: None,
        destroyed: Destroyed | None = None,
        withheld: Callable[[Act], None] = lambda act: None,
        evictions_per_second: float = 5.0,
    ) -> None:
        self._scheduler = scheduler
        self._binder = binder
        self._waker = waker
        self._evictor = evictor
        self._alarm = Timer(scheduler, self)
        self._telling = EventRecorder(recorder, self._start)
        self._edits = PodEdits(self._start)
        self._evicting = Evicting(
            scheduler,
            self,
            binder,
            evictor,
            nominator,
            disruptions,
            live_pods,
            per_second=evictions_per_second,
            telling=self._telling,
            start=self._start,
            destroyed=destroyed or logged(),
        )
        self._flight_recorder = flight_recorder
        self._gates = gates
        self._announced = announced
        self._advertise = advertise
        self._ended = ended
        self._placed = placed
        self._destroyed = destroyed or logged()
        self._withheld = withheld
        self._background: set[asyncio.Task[None]] = set()
        self._failed: dict[tuple[str, str], None] = {}
        self._wakes = 0

    def do(self, decided: Decided[T]) -> T:
        """Starts the effects. Sets the timer, as no later call may come that sees new deadlines."""
        self._alarm.set()
        for effect in decided.effects:
            self._flight_recorder.note(type(effect).__name__, *_subject(effect))
            self._announced(effect)
            self._perform(effect)
        return decided.answer

    def _perform(self, effect: Effect) -> None:
        named = self._scheduler.cache.gangs.naming.of
        match effect:
            case AdvertiseCapacity(node):
                self._advertise(node)
            case OpenBarrier(_, members, attempts):
                for uid in members:
                    self._gates.let(uid, "", attempts.get(uid))
            case TurnBack(_, members, reason):
                for uid in members:
                    self._gates.let(uid, reason)
            case BindAnswered(uid, _, refusal):
                self._gates.let(uid, refusal)
            case WakePod(pod):
                self._wakes += 1
                self._wake(pod, f"{self._scheduler.cache.clock.now():.3f}-{self._wakes}")
            case PodEnded(pod):
                self._evicting.ended(pod)
                self._ended(pod)
            case GangBound(key, seconds):
                if not lone_pod(key):
                    self._placed(seconds)
            case WaitTold(pod, gang, note):
                about = "PolicyWaiting" if gang is None else "PodWaiting" if lone_pod(gang) else "GangWaiting"
                self._telling.emit(pod, EventType.WARNING, about, note)
            case RoomSaved(key, needed, members):
                note = f"{called(key, named(key))}: it has a backfill reservation for its {needed} places"
                for pod in members:
                    self._telling.emit(pod, EventType.NORMAL, "GangRoomSaved", note)
            case TurnLost(key, seconds, members):
                given_back = "its backfill reservation had no effect and is released"
                note = f"{called(key, named(key))}: {given_back}; it gets none for {seconds:g} s"
                for pod in members:
                    self._telling.emit(pod, EventType.WARNING, "GangTurnLost", note)
            case EvictFor():
                self._evicting.preempt(effect)
            case EvictRest():
                self._evicting.follow(effect)
            case Preempted():
                self._evicting.on_event(effect)
            case KeepRoomFor():
                self._evicting.keep_room(effect)
            case LetRoomGo():
                self._evicting.let_room_go(effect)
            case GangTimedOut(key, arrived, quorum, members):
                for pod in members:
                    note = f"{called(key, named(key))}: {arrived} of {quorum} members were ready to be bound in time"
                    self._telling.emit(pod, EventType.WARNING, "GangTimedOut", note)
            case GangInPart(key, quorum, members, seconds):
                bound = f"{len(members)} of {quorum} members are bound"
                note = f"{called(key, named(key))}: {bound}; the others have {seconds:g} s to be bound"
                for pod in members:
                    self._telling.emit(pod, EventType.WARNING, "GangInPart", note)
            case GangInDoubt(key, quorum, members):
                bound = f"{len(members)} of {quorum} members are bound, and Escher does not know whether it ever ran"
                note = f"{called(key, named(key))}: {bound}; Escher does not evict them. To start it again, delete them"
                for pod in members:
                    self._telling.emit(pod, EventType.WARNING, "GangInDoubt", note)
            case VoidAttempts(_, members):
                for ref in map(PodRef.of, members):
                    self._edits.begin("void", ref, partial(self._waker.void_attempt, ref))
            case EvictMembers(key, quorum, members, proof):
                self._start(self._evict_part(key, quorum, members, proof))
            case GangQuarantined(key, members, defect):
                _log.error("an internal error with a gang: Escher no longer handles it", gang=str(key), exc_info=defect)
                note = f"{called(key, named(key))}: internal error in Escher; please report Escher's log"
                for pod in members:
                    self._telling.emit(pod, EventType.WARNING, "GangQuarantined", note)
            case AskRefused(pod, ask):
                of_gang = "TooMuch" if ask.too_much else "InvalidGang"
                about = of_gang if ask == pod.gang else "InvalidAnnotation"
                self._telling.emit(pod, EventType.WARNING, about, f"{ask.reason}; {ask.remedy}")
            case Withheld(act):
                self._withheld(act)
            case PolicyFailed(policy, defect):
                # A policy that fails at every call would fill the log.
                if (known := (policy, repr(defect))) not in self._failed and len(self._failed) < _DEFECTS_TOLD:
                    self._failed[known] = None
                    _log.error("a policy has failed", policy=policy, exc_info=defect)
            case GangPlanned() | GangTurnedAway() | DeadlineSet():
                pass

    async def _evict_part(self, key: GangKey, quorum: int, members: Sequence[Pod], proof: Proof) -> None:
        """Evicts a part of a quorum if the API server confirms the proof: the watch may be late."""
        async with self._evicting.share(key.namespace, len(members)) as share:
            why = await self._disproved(members, proof)
            if not self._scheduler.cache.safety_switches.allows(Act.EVICT_PART, key.namespace):
                # The safety switch was set during the check.
                why = "a safety switch forbids it"
            if why:
                _log.warning("a gang's bound members are not evicted", gang=str(key), why=why)
                for pod in members:
                    self.do(self._scheduler.on_event(NotEvicted(pod.uid)))
                return
            name = self._scheduler.cache.gangs.naming.of(key)
            note = f"{called(key, name)}: the rest of {quorum} were not bound in time; this one is evicted"
            share.evicted += sum(await asyncio.gather(*(self._evict_member(pod, str(proof), note) for pod in members)))

    async def _disproved(self, members: Sequence[Pod], proof: Proof) -> str:
        """Also checks `members`: a restore of etcd may remove Bindings that the watch shows."""
        for pod in (*proof.unbound, *members):
            try:
                await confirm(self._binder, pod)
            except (Unavailable, Refused) as error:
                if pod.node is not None and isinstance(error, Gone):
                    continue
                return str(error)
        return ""

    async def _evict_member(self, pod: Pod, why: str, note: str) -> bool:
        """Returns whether the pod is evicted."""
        evicted = await self._evict(pod)
        if evicted:
            self._telling.emit_done(pod, EventType.WARNING, "GangEvicted", note)
            self._destroyed(EvictionKind.PART, pod, why)
        else:
            self.do(self._scheduler.on_event(NotEvicted(pod.uid)))
        return evicted

    async def _evict(self, pod: Pod) -> bool:
        """Tries once. If the pod is still there later, a new order evicts it, or another pod."""
        ref = PodRef.of(pod)
        try:
            await self._evictor.evict(ref)
        except (Unavailable, Refused) as error:
            _log.warning("a member cannot be evicted", pod=str(ref), why=str(error))
            return False
        return True

    def _wake(self, pod: Pod, token: str) -> None:
        ref, waker = PodRef.of(pod), self._waker
        wake = partial(waker.open_gate, ref) if pod.at_our_gate else partial(waker.wake, ref, token)
        self._edits.begin("wake", ref, wake)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Refuses waiting binds and gives up wakes and Events. Bindings under way go on."""
        self._gates.close()
        self._alarm.stop()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


def _subject(effect: Effect) -> Sequence[object]:
    """Returns what the effect is about, in a few words."""
    match effect:
        case OpenBarrier(gang, members) | TurnBack(gang, members):
            return (gang, *members)
        case VoidAttempts(gang, members):
            return (gang, *members)
        case GangInPart(gang, _, members) | GangInDoubt(gang, _, members):
            return (gang, *members)
        case RoomSaved(gang, _, members) | TurnLost(gang, _, members):
            return (gang, *members)
        case EvictMembers(gang, _, members, proof):
            return (gang, str(proof), *members)
        case GangQuarantined(gang, _, defect):
            return (gang, repr(defect))
        case EvictFor(gang, _, victims) | EvictRest(gang, _, victims) | LetRoomGo(gang, victims):
            return (gang, *victims)
        case Preempted(victim, preemptor):
            return (victim, victim.uid, preemptor)
        case KeepRoomFor(pod, node):
            return (pod, pod.uid, node)
        case GangTimedOut(gang, _, _, members):
            return (gang, *members)
        case GangPlanned(gang) | DeadlineSet(gang) | GangBound(gang) | GangTurnedAway(gang):
            return (gang,)
        case AdvertiseCapacity(node):
            return (node,)
        case Withheld(act, namespace, gang, about):
            return (act.value, gang or namespace, *about)
        case BindAnswered(uid, _, refusal):
            return (uid, refusal)
        case PolicyFailed(policy, defect):
            return (policy, repr(defect))
        case WakePod(pod) | AskRefused(pod) | PodEnded(pod) | WaitTold(pod):
            return (pod, pod.uid)
