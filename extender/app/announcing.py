"""Announcing: what has been decided is told to whoever follows, as it happens and from a number on.

The last decisions are kept; each follower has its own place among them, so that a slow one holds up nobody, and is told
how many it has missed. What is announced is put into words when somebody reads it, or at once where it holds more than
its words do. Must not know who follows, nor how it is sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from extender.app.decisions import AskRefused, Effect
from extender.app.policies.containment import PolicyFailed
from extender.app.ports import Clock, PodRef
from extender.app.verbs import Verdict
from extender.app.wording import in_words
from extender.core.brake import Withheld
from extender.core.cluster import Pod
from extender.core.gang_of_one import WAITS, lone_pod
from extender.core.gangs.gang import (
    NO_ROOM,
    EvictFor,
    EvictMembers,
    GangBound,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    GangTurnedAway,
    RoomSaved,
    TurnLost,
    WakePod,
)
from extender.core.gangs.orders import EvictRest, Preempted
from extender.core.names import GangKey
from extender.kube.names import NodeName

REMEMBERED = 5000
_SKIPPED_AT_ONCE = 32
"""Events of other namespaces that a follower passes by before others have their turn on the loop."""
_REASONS_TOLD = 3
_PODS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Filtered:
    """kube-scheduler has asked on which of `sent` nodes the pod may be."""

    pod: Pod
    sent: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BindEnded:
    """`refusal`: empty where the pod is bound to the node."""

    pod: PodRef
    node: NodeName
    refusal: str


Told = Filtered | BindEnded | Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One decision. `number` grows by one with each; `time` is in seconds since the epoch; `what` is one CamelCase
    word. What it is not about is empty."""

    number: int
    time: float
    what: str
    namespace: str = ""
    gang: str = ""
    pod: str = ""
    node: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Missed:
    """So many decisions were forgotten before they could be told; the next one has the number `before`."""

    count: int
    before: int


@dataclass(slots=True)
class Announcements:
    _clock: Clock
    named: Callable[[GangKey], str] = attrgetter("name")
    """What a gang is called."""
    _kept: deque[tuple[float, Told | Announcement]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED), init=False
    )
    _last: int = field(default=0, init=False)
    """The number of the newest."""
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _over: bool = field(default=False, init=False)

    def remember(self, most: int) -> None:
        """No more than so many are kept."""
        self._kept = deque(self._kept, maxlen=most)

    def tell(self, told: Told) -> None:
        """It can be read from now on, if it is of interest to anybody."""
        if isinstance(told, Filtered) and 1 < len(told.verdict.passed) == told.sent:
            # Nothing was decided.
            return
        if isinstance(told, OF_INTEREST):
            now = self._clock.now()
            self._last += 1
            self._kept.append((now, announced(self._last, now, told, self.named) if isinstance(told, _LARGE) else told))
            self._news.set()

    def close(self) -> None:
        """Whoever follows is told the rest, and that is all."""
        self._over = True
        self._news.set()

    def follow(self, after: int | None = None, *, namespace: str | None = None) -> AsyncIterator[Announcement | Missed]:
        """What is decided from now on, or what came after that number, until the service ends. `namespace`: of that
        one alone."""
        # A number that we have not reached was told by a life before ours: all of ours is new to whoever has it.
        return self._follow(self._last if after is None else after if after <= self._last else 0, namespace)

    async def _follow(self, done: int, namespace: str | None) -> AsyncIterator[Announcement | Missed]:
        while not (self._over and done == self._last):
            if done == self._last:
                self._news.clear()
                await self._news.wait()
                continue
            oldest = self._last - len(self._kept) + 1
            if done + 1 < oldest:
                missed, done = oldest - done - 1, oldest - 1
                yield Missed(missed, oldest)
                continue
            done += 1
            when, told = self._kept[done - oldest]
            said = told if isinstance(told, Announcement) else announced(done, when, told, self.named, namespace)
            if namespace in (None, said.namespace):
                yield said
            elif done % _SKIPPED_AT_ONCE == 0:
                await asyncio.sleep(0)


OF_INTEREST = (
    Filtered,
    BindEnded,
    AskRefused,
    EvictFor,
    EvictMembers,
    EvictRest,
    GangBound,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    GangTurnedAway,
    PolicyFailed,
    Preempted,
    RoomSaved,
    TurnLost,
    WakePod,
    Withheld,
)
_LARGE = (Filtered, PolicyFailed, GangQuarantined)
"""Thousands are kept, and each may have the names of thousands of nodes, or, by a defect's traceback, the variables of
all who were on the way to it: bodies of requests."""


def announced(
    number: int,
    when: float,
    told: Told,
    named: Callable[[GangKey], str] = attrgetter("name"),
    within: str | None = None,
) -> Announcement:
    """What is told, which is of interest, in words. `within`: pods of other namespaces than that are not named."""

    def pod_named(pod: Pod | PodRef) -> str:
        return f"pod {pod}" if within in (None, pod.namespace) else "a pod of another namespace"

    def of_gang(what: str, gang: GangKey, detail: str = "", pod: str = "") -> Announcement:
        alone = lone_pod(gang)
        name, pod = ("", alone) if alone else (named(gang), pod)
        return Announcement(
            number=number, time=when, what=what, namespace=gang.namespace, gang=name, pod=pod, detail=detail
        )

    def of_pod(what: str, pod: Pod | PodRef, detail: str = "", node: str = "") -> Announcement:
        return Announcement(
            number=number, time=when, what=what, namespace=pod.namespace, pod=pod.name, node=node, detail=detail
        )

    match told:
        case Filtered(pod, _, Verdict(passed=[node])):
            return of_pod("PodPlaced", pod, node=node)
        case Filtered(pod, _, Verdict(passed=[]) as verdict):
            return of_pod("PodTurnedAway", pod, verdict.error or _reasons(verdict))
        case Filtered(pod, sent, verdict):
            return of_pod("NodesFiltered", pod, f"{len(verdict.passed)} of {sent} nodes pass")
        case BindEnded(pod, node, ""):
            return of_pod("PodBound", pod, node=node)
        case BindEnded(pod, node, refusal):
            return of_pod("PodNotBound", pod, refusal, node)
        case AskRefused(pod, ask):
            return of_pod("AskRefused", pod, f"{ask.reason}; {ask.remedy}")
        case WakePod(pod):
            return of_pod("PodWoken", pod)
        case Preempted(victim, preemptor):
            return of_pod("PodPreempted", victim, f"for {pod_named(preemptor)}")
        case GangPlanned(gang):
            return of_gang("GangPlanned", gang)
        case GangBound(gang, seconds):
            return of_gang("GangBound", gang, f"{seconds:.3f} s after its first member was seen")
        case GangTurnedAway(gang, member, reason, shortfall):
            alone = bool(lone_pod(gang))
            words = WAITS if alone and reason == NO_ROOM else reason
            if shortfall is not None:
                words = f"{words}: {in_words(shortfall, member.governed, alone=alone)}"
            return of_gang("GangTurnedAway", gang, words, member.name)
        case RoomSaved(gang, needed):
            return of_gang("GangRoomSaved", gang, f"what comes free is saved for its {needed} places")
        case TurnLost(gang, seconds):
            return of_gang("GangTurnLost", gang, f"nothing is saved for it for {seconds:g} s")
        case GangTimedOut(gang, arrived, quorum):
            return of_gang("GangTimedOut", gang, f"{arrived} of {quorum} members were ready to be bound in time")
        case GangInPart(gang, quorum, members) | GangInDoubt(gang, quorum, members):
            return of_gang(type(told).__name__, gang, f"{len(members)} of {quorum} members are bound")
        case GangQuarantined(gang, _, defect):
            return of_gang("GangQuarantined", gang, repr(defect))
        case EvictFor(gang, _, victims):
            return of_gang("PodsEvicted", gang, f"for its sake: {_names(victims, within)}")
        case EvictRest(gang, preemptor, rest):
            return of_gang("PodsEvicted", gang, f"the rest of it, for {pod_named(preemptor)}: {_names(rest, within)}")
        case EvictMembers(gang, quorum, members, proof):
            return of_gang("PodsEvicted", gang, f"of its quorum of {quorum}: {_names(members, within)}; {proof}")
        case Withheld(act, namespace, gang, about):
            detail = f"{act.value}: {' '.join(about)}".rstrip(": ")
            if gang is not None:
                return of_gang("Withheld", gang, detail)
            return Announcement(number=number, time=when, what="Withheld", namespace=namespace, detail=detail)
        case PolicyFailed(policy, defect):
            return Announcement(number=number, time=when, what="PolicyFailed", detail=f"{policy}: {defect!r}")
        case _:
            raise AssertionError(f"nobody has words for {told}")


def _reasons(verdict: Verdict) -> str:
    """Each reason once, and of how many nodes it is told."""
    told = [*verdict.rejected.values(), *verdict.unresolvable.values()]
    # Mostly thousands of nodes have the same one, and to see that takes an eighth of the time.
    alike = bool(told) and told.count(told[0]) == len(told)
    counted = Counter({told[0]: len(told)}) if alike else Counter(told)
    return "; ".join(f"{count} nodes: {reason}" for reason, count in counted.most_common(_REASONS_TOLD))


def _names(pods: Sequence[Pod], within: str | None) -> str:
    told = [pod for pod in pods if within in (None, pod.namespace)]
    named = ", ".join(str(pod) for pod in told[:_PODS_NAMED])
    more = len(pods) - min(len(told), _PODS_NAMED)
    if pods and not told:
        return f"{len(pods)} pods of other namespaces"
    return f"{named} and {more} more" if more else named
