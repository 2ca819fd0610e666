"""Admission: answers a member's filter call with a held node, or with the constant reason to wait.

`planner` decides when a plan is possible, `requeue` when a turn has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.gangs.cycle.members import Members
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.cycle.requeue import Requeue
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.placement.slots import SAMPLE_FLOOR, Slots
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import (
    INCOMPLETE,
    NO_ROOM,
    NO_ROOM_FOR_MEMBER,
    NOT_ITS_NODE,
    OVER_QUOTA,
    QUARANTINE,
    Gang,
    GangTurnedAway,
    WakePod,
)
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase, Step
from extender.core.ledger.ledger import Ledger
from extender.core.policy import Refuse
from extender.kube.names import NodeName


@dataclass(eq=False)
class Admission:
    _ledger: Ledger
    _slots: Slots
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _requeue: Requeue
    _members: Members
    _quarantine: Quarantine

    def admit(self, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | Refuse:
        """The member's node, one of those sent, held for it; or why it must wait.

        A repeated call gets the same answer while the node is among those sent; otherwise the plan moves.
        """
        with self._quarantine.containing(self._table.key_asked_for(pod)):
            return self._admit(pod, sent, now)
        return _refuse(QUARANTINE)

    def would_refuse(self, pod: Pod, sent: Sequence[NodeName]) -> str:
        """Why `admit` would reject the member now, empty if it would not. Changes nothing."""
        gang = self._table.of(pod.uid)
        if gang is None or pod.uid in gang.roster.bound or not gang.needed:
            return ""
        if gang.missing:
            return INCOMPLETE
        if self._waiting.quota.over(gang) is not None:
            return OVER_QUOTA
        return "" if self._places.has_room(gang, pod, sent, ()) else NO_ROOM

    def _admit(self, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | Refuse:
        gang = self._members.observe(pod, now)
        if gang is None:
            return _refuse(NO_ROOM)
        if gang.phase is Phase.QUARANTINED:
            return _refuse(QUARANTINE)
        if pod.deleting:
            return _refuse(NO_ROOM_FOR_MEMBER)
        if pod.uid not in gang.plan.asked:
            gang.plan.asked.add(pod.uid)
            self._planning.plans.asked(gang)
        planless = not gang.holds_a_plan or (
            gang.needed and not gang.barrier.writing and not self._places.has_unbound(gang)
        )
        if planless and (self._requeue.postpone(gang, now) or not self._planning.plan(gang, pod, sent, now)):
            return self._turn_away(gang, pod, now)
        node = self._place(gang, pod, sent, now)
        if node is None:
            return self._displaced(gang, pod, sent, now)
        if gang.barrier.arrived.get(pod.uid, node) != node:
            # The later of two tries counts: kube-scheduler was restarted, or has given up the earlier one.
            self._table.turn_back(gang, [pod.uid], NOT_ITS_NODE)
        gang.wait.rejected.discard(pod.uid)
        self._waiting.surplus.passed(pod.uid)
        return node

    def _place(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | None:
        """The node, one of those sent, on which the pod now holds its units; None if there is none."""
        if pod.uid in gang.barrier.writing:
            return gang.barrier.writing[pod.uid] if gang.barrier.writing[pod.uid] in sent else None
        planned = gang.phase is Phase.PLANNED
        until = gang.plan.deadline if planned else now + gang.terms.timeout
        node = self._places.take(gang, pod, sent, until)
        if node is not None:
            return node
        return self._places.reseat(gang, pod, sent) if planned else self._places.exchange(gang, pod, sent, until)

    def _turn_away(self, gang: Gang, pod: Pod, now: float) -> Refuse:
        before, reason = gang.phase, INCOMPLETE if gang.missing else self._planning.why_not(gang, now)
        gang.step(Step.LACKS_MEMBERS if gang.missing else Step.HAS_MEMBERS)
        untold = gang.phase is not before or gang.phase is not gang.wait.turned_away_in
        if (
            gang.waits_anew_for(reason)
            or untold
            or all(gang.roster.members[uid].at_our_gate for uid in gang.wait.rejected)
        ):
            gang.wait.turned_away_in = gang.phase
            self._table.effects.append(GangTurnedAway(gang.key, pod, reason, gang.wait.shortfall))
        gang.wait.rejected.add(pod.uid)
        if gang.phase is Phase.WAITING:
            self._waiting.enter(gang, now)
        return _refuse(reason)

    def _displaced(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], now: float) -> Refuse:
        """The pod fits on none of the nodes sent, but the gang keeps its plan."""
        if gang.phase is not Phase.PLANNED or self._is_surplus(gang, pod):
            gang.wait.rejected.add(pod.uid)
            if pod.uid not in gang.barrier.arrived and pod.uid not in gang.barrier.writing:
                self._places.make_way(gang, pod)
            self._waiting.surplus.has(gang)
            if self._waiting.quota.over_by_one(gang) is not None:
                self._waiting.quota.watch(gang)
                return _refuse(OVER_QUOTA)
            if not self._slots.is_sample(sent):
                self._waiting.surplus.found_no_place(gang, pod)
            return _refuse(NO_ROOM_FOR_MEMBER)
        if [pod.nominated] == list(sent) and len(self._slots.nodes) > 1:
            # kube-scheduler asks about the nominated node first, and then about the others.
            return _refuse(NO_ROOM)
        times = gang.plan.displaced[pod.uid] = gang.plan.displaced.get(pod.uid, 0) + 1
        windows = -(-len(self._slots.nodes) // max(1, len(sent)))
        if len(sent) >= SAMPLE_FLOOR and times <= windows:
            # Another window of kube-scheduler's node sample may hold its node.
            self._table.effects.append(WakePod(pod))
            return _refuse(NO_ROOM)
        lacks_members = gang.missing > 0
        self._planning.give_up(gang, now, "a member fits on no node that kube-scheduler offers")
        if lacks_members:
            # Others may have taken this member's place. The next plan is made, and held, when all members exist.
            gang.plan.gathered = True
        else:
            self._planning.refused(gang, sent, now)
        return self._turn_away(gang, pod, now)

    def _is_surplus(self, gang: Gang, pod: Pod) -> bool:
        """Whether the plan and the placed members cover the quorum without this pod."""
        return (
            self._ledger.holding(pod.uid) is None
            and len(self._places.unbound(gang)) + gang.roster.placed >= gang.terms.quorum
        )


def _refuse(reason: str) -> Refuse:
    """Refuses without preemption: a gang preempts as a whole; evictions for one member do not help."""
    return Refuse(reason, preemption_helps=False)
