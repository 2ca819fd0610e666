"""The permit barrier: members wait in bind until the quorum has arrived.

It opens only when the quorum has arrived and holds all that it needs. A member that arrives later is let through at
once, in the attempt that is continued (`partial_gangs`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from extender.core.attempt import Attempt
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.cycle.quorum import Quorums
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.state.gang import NOT_ITS_NODE, QUARANTINE, ROOM_TAKEN, Gang, OpenBarrier
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.partial_gangs import Trial, gone_on_with
from extender.core.gangs.state.state_machine import Past, Phase, Standing, Step
from extender.core.ledger.ledger import HoldingKind, Ledger
from extender.kube.names import NodeName, PodUid


@dataclass(eq=False)
class Barrier:
    """`life`: unique name of this run of the service."""

    _ledger: Ledger
    _table: GangStore
    _places: Places
    _planning: Planning
    _quorums: Quorums
    _quarantine: Quarantine
    _life: str
    _trials: int = field(default=0, init=False)

    # -- a member arrives in bind --------------------------------------------------------------------------------

    def arrive(self, uid: PodUid, node: NodeName, now: float) -> str:
        """The member arrives at the barrier for that node. An OpenBarrier effect lets it through.

        Returns the reason if the member may not be bound, else an empty string.
        """
        with self._quarantine.containing(self._table.key_of(uid)):
            return self._arrive(uid, node)
        return QUARANTINE

    def _arrive(self, uid: PodUid, node: NodeName) -> str:
        gang = self._table.of(uid)
        if gang is None:
            return "the pod is not a member of a known gang"
        if gang.phase is Phase.QUARANTINED:
            return QUARANTINE
        under_way = gang.barrier.writing.get(uid) or (
            gang.roster.members[uid].node if uid in gang.roster.bound else None
        )
        if under_way is not None or uid in gang.roster.bound:
            if under_way not in (None, node):
                return f"the pod is already assigned to {under_way}"
            self._table.effects.append(OpenBarrier(gang.key, (uid,)))
            return ""
        held = self._ledger.holding(uid)
        if held is None or held.owner != gang.key:
            return "the gang's reservation has ended: the pod is tried again"
        units = gang.roster.members[uid].requests
        has_room = self._ledger.rows.short(node, units, (uid,)) is None
        if not has_room or not self._places.may_settle_on(gang, held, node):
            refusal = NOT_ITS_NODE if held.node != node else ROOM_TAKEN
            self._table.turn_back(gang, [uid] if uid in gang.barrier.arrived else [], refusal)
            return refusal
        # An earlier filter call may have led here, and a later plan have a slot for the pod: it takes that now.
        self._places.settle_on(held, node, units)
        gang.barrier.arrived[uid] = node
        self.open_if_complete(gang)
        return ""

    # -- the barrier opens ---------------------------------------------------------------------------------------

    def open_if_complete(self, gang: Gang) -> None:
        """Lets through all members that may be bound now."""
        if not gang.barrier.arrived:
            return
        joins = gang.standing is Standing.RAN
        trial = None if joins else _gone_on_with(gang)
        # Room of the plan may be lost while members waited: to a foreign pod, or with a deleted node.
        while (opening := _let(gang, trial)) and (overtaken := self._places.make_good(gang, opening)):
            self._table.turn_back(gang, overtaken, ROOM_TAKEN)
        if not opening:
            return
        members = tuple(opening)
        trial = self._try(gang, members, trial, joins=joins)
        for uid in members:
            gang.barrier.writing[uid] = gang.barrier.arrived.pop(uid)
        gang.step(Step.BARRIER_OPENED)
        gang.remember(Past.TRIED)
        gang.plan.intends = False
        self._planning.carried_out(gang)
        marks = trial.marks(joins)
        self._table.effects.append(OpenBarrier(gang.key, members, {uid: marks[uid] for uid in members}))

    def _try(self, gang: Gang, members: Collection[PodUid], trial: Trial | None, *, joins: bool) -> Trial:
        """The attempt of these Bindings, continued or new, with all members that may join it."""
        if trial is None:
            self._trials += 1
            trial = Trial(f"{self._life}.{self._trials}", max(1, _lacking(gang)))
        trial.include(members)
        if not joins:
            trial.include(
                uid for uid, pod in gang.roster.members.items() if uid not in gang.roster.bound and not pod.deleting
            )
            gang.barrier.trial = trial
        return trial

    def let_through(self, gang: Gang, now: float) -> None:
        """Lets all members at the barrier through without the quorum, and gives up the plan.

        kube-scheduler already counts them there; an error would only keep them off. This is no attempt at a quorum.
        """
        members = tuple(gang.barrier.arrived)
        if not members:
            self._planning.give_up(gang, now)
            return
        gang.barrier.writing.update(gang.barrier.arrived)
        gang.barrier.arrived.clear()
        for uid in members:
            self._ledger.keep(uid, None)
        self._places.release(gang)
        gang.plan.deadline, gang.plan.intends = None, False
        gang.plan.displaced.clear()
        self._planning.carried_out(gang)
        gang.step(Step.BARRIER_OPENED)
        self._table.effects.append(OpenBarrier(gang.key, members))

    # -- results of Bindings -------------------------------------------------------------------------------------

    def written(self, uid: PodUid, node: NodeName, attempt: Attempt | None, now: float) -> None:
        """The member's Binding is written. `attempt`: the record that the Binding carries."""
        with self._quarantine.containing(self._table.key_of(uid)):
            if (gang := self._table.of(uid)) is not None:
                if attempt is not None:
                    gang.roster.take(replace(gang.roster.members[uid], attempt=attempt))
                self.is_bound(gang, uid, now)
                self.open_if_complete(gang)

    def is_bound(self, gang: Gang, uid: PodUid, now: float) -> None:
        """The member is bound, by Escher or by another component."""
        gang.barrier.writing.pop(uid, None)
        gang.wait.rejected.discard(uid)
        if gang.barrier.arrived.pop(uid, None) is not None:
            self._table.effects.append(OpenBarrier(gang.key, (uid,)))
        if uid in gang.roster.bound:
            return
        gang.roster.bind(uid)
        self._quorums.weigh(gang, now)

    def failed(self, uid: PodUid, now: float, *, for_good: bool, surely: bool = False) -> None:
        """The member's Binding was not written. `surely`: nor by an earlier try with a lost answer.

        Its units stay held for its next try or, `for_good`, for a successor.
        """
        with self._quarantine.containing(self._table.key_of(uid)):
            # Its deletion may have been seen before.
            for gang in list(self._table.by_key.values()):
                if gang.barrier.trial is not None and uid in gang.barrier.trial.members:
                    with self._quarantine.containing(gang.key):
                        gang.barrier.trial.failed(uid, for_good=for_good, surely=surely)
                        self._quorums.weigh(gang, now)
            if (gang_of_it := self._table.of(uid)) is not None:
                self._failed(gang_of_it, uid, now, for_good=for_good)

    def _failed(self, gang: Gang, uid: PodUid, now: float, *, for_good: bool) -> None:
        if gang.barrier.writing.pop(uid, None) is None:
            return
        held = self._ledger.holding(uid)
        if held is not None and held.kind is not HoldingKind.BOUND:
            until = now + gang.terms.timeout
            if for_good:
                self._places.hand_over(gang, held, until)
            else:
                self._ledger.keep(uid, until)
        if uid in gang.wait.rejected:
            # kube-scheduler considered the Binding failed before Escher did, and the filter rejected the pod meanwhile.
            self._table.wake(gang, uid)
        self._quorums.weigh(gang, now)
        self.open_if_complete(gang)


def _lacking(gang: Gang) -> int:
    """How many of the quorum are neither placed nor being bound."""
    return gang.terms.quorum - gang.roster.placed - len(gang.barrier.writing)


def _gone_on_with(gang: Gang) -> Trial | None:
    """The attempt that is not whole yet, also from an earlier run of the service."""
    # Members that are leaving belong to an attempt that has failed.
    if not (gang.barrier.writing or len(gang.roster.bound) > len(gang.roster.leaving)):
        return None
    return gang.barrier.trial or gone_on_with(gang.roster.staying())


def _let(gang: Gang, trial: Trial | None) -> Mapping[PodUid, NodeName]:
    """The members at the barrier that may be bound now, with nodes: none without the quorum."""
    lacking = _lacking(gang)
    opening = gang.barrier.arrived
    if trial is not None:
        unbound = gang.roster.members.keys() - gang.roster.bound
        opening = {uid: gang.barrier.arrived[uid] for uid in trial.let(gang.barrier.arrived, unbound, lacking)}
    return opening if len(opening) >= lacking else {}
