"""The gang as a policy: its members are placed together, all or none (`escher.dev/gang`, ...).

Maps each extension point to the part of `extender.core.gangs` that answers it, and decides nothing itself.
`extender.app.policies` calls its three classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from extender.core.cluster import Node, Pod
from extender.core.feedback import (
    Bound,
    Evicted,
    EvictionDone,
    Expired,
    Feedback,
    NotBound,
    NotEvicted,
    PoliciesChanged,
    RestStays,
    SwitchesChanged,
    TurnedAwayBefore,
    UnitStays,
)
from extender.core.gang_ask import GangAsk
from extender.core.gangs.gangs import Gangs
from extender.core.gangs.state.eviction_orders import LetRoomGo
from extender.core.gangs.state.gang import NOT_ITS_NODE, GangEffect
from extender.core.policy import Allow, Facts, GivingWay, NodeFilter, Permit, Policy, Refuse, Wait
from extender.kube.names import NodeName, PodUid

GANG = "gang"
"""Its name, which no other policy may have."""

# Evicting pods on another node does not move the plan there.
_ELSEWHERE = Refuse(NOT_ITS_NODE, preemption_helps=False)

AT_BARRIER = Wait(None, "the gang's quorum is not complete yet")
"""The answer to a member in bind: it waits until the barrier opens, or the gang is rejected."""


def gang_policies(gangs: Gangs) -> list[Policy]:
    return [GangPlacing(gangs), GangFollowing(gangs), GangSettling(gangs)]


class GangPlacing:
    """A member's node: plan, reservation and claim; and what other pods get of the gang's room."""

    name = GANG
    kept_by_plans = True

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def places(self, pod: Pod) -> bool:
        return isinstance(pod.gang, GangAsk)

    def owns(self, uid: PodUid) -> bool:
        return self._gangs.of(uid) is not None

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        return self._gangs.admission.admit(pod, nodes, now)

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        return self._gangs.admission.would_refuse(pod, nodes)

    def sleeps(self, pod: Pod, now: float) -> bool:
        if self._gangs.members.observe(pod, now) is None:
            return False
        self._gangs.members.take_for_asleep(pod.uid)
        return True

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """A member may use only the node that the gang's plan reserves for it."""
        if pod.gang is None:
            return None
        held = facts.ledger.holding(pod.uid)
        planned = None if held is None else held.node

        def judge(node: NodeName) -> Refuse | None:
            return None if node == planned else _ELSEWHERE

        return judge

    def could_pass(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """Plans follow room, and the other policies say whether there is room."""
        return None

    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        if not self.owns(pod.uid):
            return Allow()
        refusal = self._gangs.barrier.arrive(pod.uid, node, now)
        return Refuse(refusal) if refusal else AT_BARRIER

    def gives_way(self, pod: Pod) -> GivingWay:
        return self._gangs.waiting.queue.saved.gives_way_to(pod)

    def may_evict(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> Collection[NodeName]:
        return self._gangs.evictions.offer(pod, victims, now)


class GangFollowing:
    """Follows pods as they come, change and go, and collects the resulting effects."""

    name = GANG

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            return
        gangs = self._gangs
        gangs.effects += gangs.evictions.on_event(fact)
        if gangs.waiting.preempting.on_event(fact, now):
            gangs.planning.on_bystander(fact)
        if fact.gang is not None or gangs.of(fact.uid) is not None:
            gangs.members.observe(fact, now)

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Pod):
            self._gangs.waiting.preempting.victims.forget(fact.uid)
            if fact.governed:
                self._gangs.planning.on_departure(fact)

    def finished(self, pod: Pod, now: float) -> None:
        self._gangs.members.observe(pod, now)

    def deleted(self, uid: PodUid, now: float) -> None:
        self._gangs.members.remove(uid, now)

    def take_effects(self) -> Sequence[GangEffect]:
        self._gangs.quorums.announce()
        taken = list(self._gangs.effects)
        self._gangs.effects.clear()
        return taken

    def take_requeue_hints(self) -> Collection[str]:
        """Namespaces whose co-location or balance pods may now fit, since plans were given up."""
        given_up = self._gangs.planning.given_up
        taken = list(given_up)
        given_up.clear()
        return taken

    def on_event(self, told: Feedback, now: float) -> None:
        gangs, preempting = self._gangs, self._gangs.waiting.preempting
        match told:
            case Bound(uid, node, attempt):
                gangs.barrier.written(uid, node, attempt, now)
            case NotBound(uid, for_good, surely):
                gangs.barrier.failed(uid, now, for_good=for_good, surely=surely)
            case NotEvicted(uid):
                gangs.members.not_evicted(uid, now)
            case Evicted(pod, for_gang) if for_gang is not None:
                preempting.evicted(for_gang, pod)
            case UnitStays(gang, unit, left, why):
                preempting.refused(gang, unit, left, why, now)
            case RestStays(order, left, why):
                size = order.gone + len(order.rest)
                preempting.victims.is_left_in_part(order.gang, str(order.preemptor), left, size, why)
            case EvictionDone(gang):
                preempting.done(gang, now)
            case SwitchesChanged():
                preempting.victims.on_safety_switches()
                gangs.deadlines.on_safety_switches(now)
            case PoliciesChanged(namespace):
                gangs.members.on_policies(namespace, now)
            case Expired(holding) if holding.owner is not None:
                gangs.deadlines.expire(holding.owner, now)
            case TurnedAwayBefore(pod) if isinstance(pod.gang, GangAsk):
                gangs.members.take_for_asleep(pod.uid)
                if pod.nominated is not None:
                    # An earlier process nominated it: no pod is evicted for it now.
                    gangs.effects.append(LetRoomGo(pod.gang.key, (pod,)))
            case _:
                pass


class GangSettling:
    """Waiting gangs, as room becomes free and time passes."""

    name = GANG

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def begin_slice(self, now: float) -> None:
        self._gangs.requeue.begin_slice()

    def has_work(self, now: float) -> bool:
        return self._gangs.requeue.has_work or self._gangs.requeue.on_time(now)

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        self._gangs.requeue.settle(gains, now)

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        return self._gangs.waiting.queue.saved.with_news_for_others(gains)

    def slice_is_over(self) -> bool:
        fits = self._gangs.waiting.queue.fits
        return fits.work.is_over or fits.is_unsure

    def next_deadline(self) -> float | None:
        return self._gangs.deadlines.next_deadline()

    def tick(self, now: float) -> Sequence[NodeName]:
        self._gangs.deadlines.on_time(now)
        return ()
