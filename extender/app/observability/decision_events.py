"""Decision events: which decisions are of interest, the namespace of each, and its wording.

`decision_stream` keeps them for followers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from extender.app.contracts.decisions import DecisionEvent
from extender.app.contracts.effects import AskRefused, Effect, PolicyFailed
from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.messages import in_words
from extender.app.contracts.ports import PodRef
from extender.core.cluster import Pod
from extender.core.gang_of_one import WAITS, lone_pod
from extender.core.gangs.state.eviction_orders import EvictRest, OfGang, Preempted
from extender.core.gangs.state.gang import (
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
from extender.core.names import GangKey
from extender.core.safety_switches import Withheld
from extender.kube.names import NodeName

_REASONS_TOLD = 3
_PODS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Filtered:
    """kube-scheduler has called filter for the pod with `sent` nodes."""

    pod: Pod
    sent: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BindEnded:
    """A bind call has been answered. `refusal` is empty if the pod is bound to the node."""

    pod: PodRef
    node: NodeName
    refusal: str


Told = Filtered | BindEnded | Effect


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
LARGE = (Filtered, PolicyFailed, GangQuarantined)
"""Put into words at once: each may hold thousands of node names, or a traceback with requests."""
OF_SEVERAL = (Preempted, EvictFor, EvictRest, EvictMembers)
"""Their words may name pods of several namespaces."""


def namespace_of(told: Told) -> str:
    """Returns the namespace of the decision; empty if it has none."""
    match told:
        case Filtered(pod) | BindEnded(pod) | AskRefused(pod) | WakePod(pod) | Preempted(pod):
            return pod.namespace
        case Withheld(gang=None):
            return told.namespace
        case OfGang(gang) | Withheld(gang=GangKey() as gang):
            return gang.namespace
        case _:
            return ""


def announced(
    number: int,
    when: float,
    told: Told,
    named: Callable[[GangKey], str] = attrgetter("name"),
    within: str | None = None,
) -> DecisionEvent:
    """Puts a decision of interest into words. `within`: pods of other namespaces are not named."""

    def pod_named(pod: Pod | PodRef) -> str:
        return f"pod {pod}" if within in (None, pod.namespace) else "a pod of another namespace"

    def of_gang(what: str, gang: GangKey, detail: str = "", pod: str = "") -> DecisionEvent:
        alone = lone_pod(gang)
        name, pod = ("", alone) if alone else (named(gang), pod)
        return DecisionEvent(
            number=number, time=when, what=what, namespace=gang.namespace, gang=name, pod=pod, detail=detail
        )

    def of_pod(what: str, pod: Pod | PodRef, detail: str = "", node: str = "") -> DecisionEvent:
        return DecisionEvent(
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
            return of_gang("GangRoomSaved", gang, f"backfill reservation for its {needed} places")
        case TurnLost(gang, seconds):
            return of_gang("GangTurnLost", gang, f"no backfill reservation for {seconds:g} s")
        case GangTimedOut(gang, arrived, quorum):
            return of_gang("GangTimedOut", gang, f"{arrived} of {quorum} members were ready to be bound in time")
        case GangInPart(gang, quorum, members) | GangInDoubt(gang, quorum, members):
            return of_gang(type(told).__name__, gang, f"{len(members)} of {quorum} members are bound")
        case GangQuarantined(gang, _, defect):
            return of_gang("GangQuarantined", gang, repr(defect))
        case EvictFor(gang, _, victims):
            return of_gang("PodsEvicted", gang, f"for this gang: {_names(victims, within)}")
        case EvictRest(gang, preemptor, rest):
            return of_gang("PodsEvicted", gang, f"its others, for {pod_named(preemptor)}: {_names(rest, within)}")
        case EvictMembers(gang, quorum, members, proof):
            return of_gang("PodsEvicted", gang, f"of its quorum of {quorum}: {_names(members, within)}; {proof}")
        case Withheld(act, namespace, gang, about):
            detail = f"{act.value}: {' '.join(about)}".rstrip(": ")
            if gang is not None:
                return of_gang("Withheld", gang, detail)
            return DecisionEvent(number=number, time=when, what="Withheld", namespace=namespace, detail=detail)
        case PolicyFailed(policy, defect):
            return DecisionEvent(number=number, time=when, what="PolicyFailed", detail=f"{policy}: {defect!r}")
        case _:
            raise AssertionError(f"no text for {told}")


def _reasons(verdict: Verdict) -> str:
    """Returns the most frequent reasons, each with its number of nodes."""
    told = [*verdict.rejected.values(), *verdict.unresolvable.values()]
    # Mostly thousands of nodes have the same reason; this test takes an eighth of the time of counting.
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
