"""kube-scheduler's verbs, done: the keeper decides, here it is waited for and written.

Knows asyncio and the ports; must not decide anything about placement. A bind of a gang's member waits here for its
barrier, which the keeper opens; then every member writes its own Binding, all at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import structlog

from extender.app.destroyed import Destroyed, Destruction, logged
from extender.app.evicting import Evicting
from extender.app.journal import Journal
from extender.app.keeper import AdvertiseCapacity, AskRefused, Effect, Keeper, PodEnded
from extender.app.ports import (
    Binder,
    Disruptions,
    EventType,
    Evictor,
    Gone,
    Nominator,
    Notice,
    Occupied,
    PodRef,
    Recorder,
    Refused,
    Unavailable,
    Waker,
)
from extender.app.unseen_room import BindAnswered
from extender.app.verbs import Verdict, Victims
from extender.app.wording import in_words
from extender.core.attempt import ATTEMPT, Attempt, to_annotation
from extender.core.brake import Act, Withheld
from extender.core.cluster import Node, Pod
from extender.core.gang import (
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
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.orders import EvictRest, KeepRoomFor, LetRoomGo, Preempted
from extender.core.parts import Proof

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_EVENTS_REMEMBERED = 4096
_TELL_WITHIN = 120.0
_STOPPING = "Escher is shutting down: the pod is tried again"


@dataclass(frozen=True, slots=True)
class _Passage:
    """How a bind has passed: empty, and what its pod is to say of that; or why it has not."""

    refusal: str
    attempt: Attempt | None = None


@dataclass(slots=True)
class _Tries:
    """Of one Binding. `lost`: the answer to one never came, or was that the API server cannot say."""

    lost: bool = False


class Scheduling:
    """The verbs. `write_within`: for how many seconds a Binding is tried again before its caller is told no.

    `advertise` takes the nodes whose status should be written; `ended` the pods that are over; `placed` the seconds
    that a gang took; `destroyed` each pod that was evicted, and why; `withheld` what the brake holds back.
    """

    def __init__(
        self,
        keeper: Keeper,
        binder: Binder,
        waker: Waker,
        evictor: Evictor,
        recorder: Recorder,
        *,
        nominator: Nominator,
        disruptions: Disruptions,
        write_within: float,
        journal: Journal,
        advertise: Callable[[NodeName], None] = lambda node: None,
        ended: Callable[[Pod], None] = lambda pod: None,
        placed: Callable[[float], None] = lambda seconds: None,
        destroyed: Destroyed | None = None,
        withheld: Callable[[Act], None] = lambda act: None,
        evictions_per_second: float = 5.0,
    ) -> None:
        self._keeper = keeper
        self._binder = binder
        self._waker = waker
        self._evictor = evictor
        self._evicting = Evicting(
            keeper,
            evictor,
            nominator,
            disruptions,
            per_second=evictions_per_second,
            tell=self._tell,
            start=self._start,
            destroyed=destroyed or logged(),
        )
        self._recorder = recorder
        self._write_within = write_within
        self._journal = journal
        self._advertise = advertise
        self._ended = ended
        self._placed = placed
        self._destroyed = destroyed or logged()
        self._withheld = withheld
        self._at_barrier: dict[PodUid, asyncio.Future[_Passage]] = {}
        self._binding: dict[PodUid, tuple[NodeName, asyncio.Task[str]]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._told: dict[tuple[PodUid, str], None] = {}
        self._wakes = 0
        self._closed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = float("inf")

    @property
    def waiting_at_barrier(self) -> int:
        return len(self._at_barrier)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def filter(self, pod: Pod, nodes: Sequence[NodeName], described: Sequence[Node] | None = None) -> Verdict:
        verdict = self._keeper.filter(pod, nodes)
        self._journal.note("filter", pod, pod.uid, len(nodes), _outcome(verdict))
        self.set_alarm()
        return verdict

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        return self._keeper.prioritize(pod, nodes)

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        allowed = self._keeper.preempt(pod, victims)
        self._journal.note("preempt", pod, pod.uid, len(victims), tuple(allowed))
        return allowed

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        """Empty when the pod is bound to the node. A second call for the same pod joins the first."""
        under_way = self._binding.get(pod.uid)
        if under_way is not None and under_way[0] == node:
            return await asyncio.shield(under_way[1])
        if under_way is not None:
            return "an earlier bind of this pod, to another node, is still under way"
        task = asyncio.ensure_future(self._bind(pod, node))
        self._binding[pod.uid] = (node, task)
        task.add_done_callback(lambda _: self._binding.pop(pod.uid, None))
        return await asyncio.shield(task)

    async def _bind(self, pod: PodRef, node: NodeName) -> str:
        self._journal.note("bind", pod, pod.uid, node)
        refusal = await self._pass_and_write(pod, node)
        self._journal.note("bound" if not refusal else "not bound", pod, pod.uid, refusal or node)
        return refusal

    async def _pass_and_write(self, pod: PodRef, node: NodeName) -> str:
        passage = await self._pass_barrier(pod, node)
        if passage.refusal:
            return passage.refusal
        tries = _Tries()
        try:
            await self._write(pod, node, passage.attempt, tries)
        except Refused as error:
            # A try whose answer was lost may have bound the pod, which is gone since.
            self._keeper.not_bound(pod.uid, for_good=isinstance(error, Gone), surely=not tries.lost)
            self.set_alarm()
            return f"the API server refuses the binding: {error}"
        except Unavailable as error:
            self._keeper.not_bound(pod.uid, for_good=False, surely=not tries.lost)
            self.set_alarm()
            return f"the API server cannot be reached: {error}"
        self._keeper.bound(pod.uid, node)
        return ""

    async def _pass_barrier(self, pod: PodRef, node: NodeName) -> _Passage:
        if self._closed:
            return _Passage(_STOPPING)
        # Before the keeper is asked: its answer may be to let this very one through.
        gate: asyncio.Future[_Passage] = asyncio.get_running_loop().create_future()
        self._at_barrier[pod.uid] = gate
        if not self._keeper.has_barrier(pod.uid):
            answer = self._keeper.claim_for_bind(pod.uid, node)
        else:
            answer = self._keeper.arrive(pod.uid, node) or None
        if answer is not None:
            self._at_barrier.pop(pod.uid, None)
            return _Passage(answer)
        self.set_alarm()
        return await gate

    async def _write(self, pod: PodRef, node: NodeName, attempt: Attempt | None, tries: _Tries) -> None:
        """The Binding is written, whatever becomes of single tries.

        Raises Refused, and Unavailable after a while.
        """
        said: dict[str, str] = {}
        if attempt is not None:
            said[ATTEMPT] = to_annotation(replace(attempt, at=self._keeper.clock.now()), pod.uid)
        await _insist(
            lambda: self._try_to_write(pod, node, said, tries), self._write_within, what="bind", pod=str(pod), node=node
        )

    async def _try_to_write(self, pod: PodRef, node: NodeName, said: Mapping[str, str], tries: _Tries) -> None:
        try:
            await self._binder.bind(pod, node, said)
        except Occupied:
            # Written by a try that seemed to fail, or by somebody else.
            if await self._binder.node_of(pod) != node:
                raise
        except Unavailable:
            tries.lost = True
            raise

    # -- effects -------------------------------------------------------------------------------------------------

    def take(self, effects: Sequence[Effect]) -> None:
        """The effects are done, or under way. What has a deadline now has its alarm, though no call may follow."""
        self.set_alarm()
        for effect in effects:
            self._journal.note(type(effect).__name__, *_subject(effect))
            match effect:
                case AdvertiseCapacity(node):
                    self._advertise(node)
                case OpenBarrier(_, members, attempts):
                    for uid in members:
                        self._let(uid, "", attempts.get(uid))
                case TurnBack(_, members, reason):
                    for uid in members:
                        self._let(uid, reason)
                case BindAnswered(uid, _, refusal):
                    self._let(uid, refusal)
                case WakePod(pod):
                    self._wakes += 1
                    self._start(self._wake(pod, f"{self._keeper.clock.now():.3f}-{self._wakes}"))
                case PodEnded(pod):
                    self._ended(pod)
                case GangBound(_, seconds):
                    self._placed(seconds)
                case GangTurnedAway(key, member, reason, shortfall):
                    detail = f": {in_words(shortfall)}" if shortfall is not None else ""
                    self._tell(member, EventType.WARNING, "GangWaiting", f"gang {key.name}: {reason}{detail}")
                case RoomSaved(key, needed, members):
                    note = f"gang {key.name}: its turn has come: what comes free is saved for its {needed} places"
                    for pod in members:
                        self._tell(pod, EventType.NORMAL, "GangRoomSaved", note)
                case TurnLost(key, seconds, members):
                    given_back = "what was saved for it led to nothing and is given back"
                    note = f"gang {key.name}: {given_back}; none is saved for {seconds:g} s"
                    for pod in members:
                        self._tell(pod, EventType.WARNING, "GangTurnLost", note)
                case EvictFor():
                    self._evicting.preempt(effect)
                case EvictRest():
                    self._evicting.follow(effect)
                case Preempted():
                    self._evicting.heed(effect)
                case KeepRoomFor():
                    self._evicting.keep_room(effect)
                case LetRoomGo():
                    self._evicting.let_room_go(effect)
                case GangTimedOut(key, arrived, quorum, members):
                    for pod in members:
                        note = f"gang {key.name}: {arrived} of {quorum} members were ready to be bound in time"
                        self._tell(pod, EventType.WARNING, "GangTimedOut", note)
                case GangInPart(key, quorum, members, seconds):
                    bound = f"{len(members)} of {quorum} members are bound"
                    note = f"gang {key.name}: {bound}; the others have {seconds:g} s to follow"
                    for pod in members:
                        self._tell(pod, EventType.WARNING, "GangInPart", note)
                case GangInDoubt(key, quorum, members):
                    bound = f"{len(members)} of {quorum} members are bound, and whether it ever ran is not known"
                    note = f"gang {key.name}: {bound}; they are left alone. To start it anew, delete them"
                    for pod in members:
                        self._tell(pod, EventType.WARNING, "GangInDoubt", note)
                case VoidAttempts(_, members):
                    for pod in members:
                        self._start(self._void_attempt(pod))
                case EvictMembers(key, quorum, members, proof):
                    self._start(self._evict_part(key, quorum, members, proof))
                case GangQuarantined(key, members, defect):
                    _log.error("a gang cannot be handled, and is left as it is", gang=str(key), exc_info=defect)
                    note = f"gang {key.name}: Escher has met a defect of its own with it; please report its log"
                    for pod in members:
                        self._tell(pod, EventType.WARNING, "GangQuarantined", note)
                case AskRefused(pod, ask):
                    self._tell(pod, EventType.WARNING, "InvalidGang", f"{ask.reason}; {ask.remedy}")
                case Withheld(act):
                    self._withheld(act)
                case GangPlanned() | DeadlineSet():
                    pass

    async def _evict_part(self, key: GangKey, quorum: int, members: Sequence[Pod], proof: Proof) -> None:
        """The part of a quorum goes, if the API server itself says that what proves it is so: our watch may be late."""
        await self._evicting.pace(len(members))
        why = await self._disproved(proof)
        if not self._keeper.brake.allows(Act.EVICT_PART, key.namespace):
            # Put on while that was asked.
            why = "the brake is on"
        if why:
            _log.warning("a gang's part is left alone", gang=str(key), why=why)
            for pod in members:
                self._keeper.not_evicted(pod.uid)
            self.set_alarm()
            return
        note = f"gang {key.name}: the rest of {quorum} did not follow in time; this one is evicted"
        for pod in members:
            self._tell(pod, EventType.WARNING, "GangEvicted", note)
        await asyncio.gather(*(self._evict_member(pod, str(proof)) for pod in members))

    async def _disproved(self, proof: Proof) -> str:
        for pod in proof.unbound:
            try:
                if (node := await self._binder.node_of(PodRef.of(pod))) is not None:
                    return f"{pod} is bound to {node}"
            except (Unavailable, Refused) as error:
                return f"{pod}: {error}"
        return ""

    async def _evict_member(self, pod: Pod, why: str) -> None:
        if await self._evict(pod):
            self._destroyed(Destruction.PART, pod, why)
        else:
            self._keeper.not_evicted(pod.uid)
            self.set_alarm()

    async def _evict(self, pod: Pod) -> bool:
        """Once: what is still there after a while is to be evicted again, or another in its place."""
        ref = PodRef.of(pod)
        try:
            await self._evictor.evict(ref)
        except (Unavailable, Refused) as error:
            _log.warning("a member cannot be evicted", pod=str(ref), why=str(error))
            return False
        return True

    def _let(self, uid: PodUid, refusal: str, attempt: Attempt | None = None) -> None:
        gate = self._at_barrier.pop(uid, None)
        if gate is not None and not gate.done():
            gate.set_result(_Passage(refusal, attempt))

    async def _void_attempt(self, pod: Pod) -> None:
        ref, waker = PodRef.of(pod), self._waker
        try:
            await _insist(lambda: waker.void_attempt(ref), inf, what="void", pod=str(ref))
        except Refused as error:
            _log.info("what a pod says of its attempt stays", pod=str(ref), why=str(error))

    async def _wake(self, pod: Pod, token: str) -> None:
        ref, waker = PodRef.of(pod), self._waker
        try:
            await _insist(
                lambda: waker.open_gate(ref) if pod.at_our_gate else waker.wake(ref, token),
                inf,
                what="wake",
                pod=str(ref),
            )
        except Gone as error:
            _log.info("a pod to wake is gone", pod=str(ref), why=str(error))
        except Refused as error:
            _log.warning("a pod cannot be woken", pod=str(ref), why=str(error))

    def _tell(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """The pod has an event that says so; once for the same pod and note."""
        seen = (pod.uid, note)
        if seen in self._told:
            return
        self._told[seen] = None
        if len(self._told) > _EVENTS_REMEMBERED:
            del self._told[next(iter(self._told))]
        ref = PodRef.of(pod)
        self._start(self._record(Notice(ref, kind, reason, note)))

    async def _record(self, notice: Notice) -> None:
        """Tried for a while: that the API server was away may be what there is to tell."""
        try:
            await _insist(lambda: self._recorder.record(notice), _TELL_WITHIN, what="tell", pod=str(notice.pod))
        except (Unavailable, Refused) as error:
            _log.info("an event is lost", pod=str(notice.pod), reason=notice.reason, why=str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- time ----------------------------------------------------------------------------------------------------

    def set_alarm(self) -> None:
        """The keeper ticks at its next deadline."""
        deadline = self._keeper.next_deadline()
        if deadline is None or deadline >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        wait = max(0.0, deadline - self._keeper.clock.steady())
        self._alarm = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, float("inf")
        try:
            self._keeper.tick()
        finally:
            # Whatever happened: a clock that has stopped would be the end of every gang.
            self.set_alarm()

    async def close(self) -> None:
        """No bind waits at a barrier any more: those that did are told that the service stops.

        Wakes and events are given up; a Binding that is being written goes on, and answers its caller.
        """
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for uid in list(self._at_barrier):
            self._let(uid, _STOPPING)
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


async def _insist(attempt: Callable[[], Awaitable[None]], within: float, **about: str) -> None:
    """It has succeeded, with longer pauses from attempt to attempt, and such as the API server asks for.

    Raises Refused, and Unavailable where the next attempt would come later than `within` seconds.
    """
    loop = asyncio.get_running_loop()
    give_up, pause = loop.time() + within, _FIRST_PAUSE
    while True:
        try:
            await attempt()
            return
        except Unavailable as error:
            wait = max(pause, error.retry_after or 0.0)
            if loop.time() + wait > give_up:
                raise
            _log.info("tried again", **about, why=str(error))
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _subject(effect: Effect) -> Sequence[object]:
    """Whom the effect is about, in a few words."""
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
        case WakePod(pod) | AskRefused(pod) | PodEnded(pod):
            return (pod, pod.uid)


def _outcome(verdict: Verdict) -> str:
    if verdict.passed:
        return verdict.passed[0] if len(verdict.passed) == 1 else f"{len(verdict.passed)} nodes"
    return next(iter([*verdict.rejected.values(), *verdict.unresolvable.values()]), "no node")
