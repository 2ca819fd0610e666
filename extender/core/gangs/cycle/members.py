"""Members: which pod belongs to which gang, as pods are created, change, end and are deleted.

The holding of a lost member is kept for a successor while the gang's plan lives. `admission` handles filter calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.cycle.permit_barrier import Barrier
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.cycle.quorum import Quorums
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import GOVERNED_ANEW, NOTHING_LEFT, Gang
from extender.core.gangs.state.gang_state import Terms
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.kube.names import PodUid


class EndedWell:
    """Pods that ended successfully and still exist at the API server, by their gang.

    A gang ends with its last living member. If its controller then creates another pod, a new gang begins, and pods
    that ended successfully before count for its quorum. So it is when a restarted service finds such pods in its first
    list.
    """

    def __init__(self) -> None:
        self._of: dict[GangKey, dict[PodUid, Pod]] = {}
        self._keys: dict[PodUid, GangKey] = {}

    def on_event(self, pod: Pod) -> None:
        """Records the pod if it succeeded, had a node and is not being deleted; else forgets it."""
        self.forget(pod.uid)
        ended_well = pod.finished and pod.succeeded and pod.node is not None and not pod.deleting
        if ended_well and isinstance(pod.gang, GangAsk):
            self._keys[pod.uid] = pod.gang.key
            self._of.setdefault(pod.gang.key, {})[pod.uid] = pod

    def forget(self, uid: PodUid) -> None:
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._of[key][uid]
            if not self._of[key]:
                del self._of[key]

    @property
    def known(self) -> Collection[PodUid]:
        return self._keys.keys()

    def pods(self) -> Iterator[Pod]:
        return (pod for ended in self._of.values() for pod in ended.values())

    def of_the_run(self, key: GangKey, living: Pod) -> Iterator[PodUid]:
        """Pods of the gang from the same run as the living member."""
        return (uid for uid, ended in self._of.get(key, {}).items() if same_run(ended, living))


@dataclass(eq=False)
class Members:
    _ledger: Ledger
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _quorums: Quorums
    _barrier: Barrier
    _quarantine: Quarantine
    ended_well: EndedWell = field(default_factory=EndedWell, init=False)

    # -- pods come -----------------------------------------------------------------------------------------------

    def observe(self, pod: Pod, now: float) -> Gang | None:
        """Takes in the pod as it is now. Returns its gang, or None if it has none (any more)."""
        with self._quarantine.containing(self._table.key_asked_for(pod)):
            return self._observe(pod, now)
        return self._table.of(pod.uid)

    def _observe(self, pod: Pod, now: float) -> Gang | None:
        former = self._table.of(pod.uid)
        self.ended_well.on_event(pod)
        ask = pod.gang if isinstance(pod.gang, GangAsk) else None
        if former is not None and (ask is None or ask.key != former.key):
            self._remove(pod.uid, now)
            former = None
        if ask is None:
            return None
        if pod.finished:
            return self._finish(pod, former, now)
        gang = former if former is not None else self._table.join(pod.uid, ask, now)
        self._take_in(gang, pod, ask, now)
        if gang.phase is Phase.QUARANTINED:
            if pod.node is not None:
                gang.roster.bind(pod.uid)
            return gang
        if pod.node is not None:
            if pod.deleting:
                gang.roster.leaving.add(pod.uid)
            self._barrier.is_bound(gang, pod.uid, now)
        elif pod.deleting:
            self._leave(gang, pod.uid, now)
        else:
            self._on_arrival(gang, now)
        self._barrier.open_if_complete(gang)
        self._quorums.weigh(gang, now)
        return gang

    def _on_arrival(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.PLANNED and not gang.missing:
            self._planning.all_are_there(gang, now)

    def _take_in(self, gang: Gang, pod: Pod, ask: GangAsk, now: float) -> None:
        """Updates the gang with the pod as it is now."""
        known = gang.roster.members.get(pod.uid)
        if known == pod:
            return
        gang.roster.take(pod)
        anew = known is not None and known.governed != pod.governed and self._ledger.holding(pod.uid) is not None
        if anew and gang.phase is Phase.PLANNED:
            # The plan was made for the pod's former requirements.
            self._planning.plans.in_vain(gang, now)
            self._planning.give_up(gang, now, GOVERNED_ANEW)
        if pod.at_our_gate and not pod.gated and (known is None or known.gated):
            # The pod waits to be woken, as if the filter had rejected it.
            gang.wait.rejected.add(pod.uid)
        if known is None:
            gang.roster.succeeded.update(self.ended_well.of_the_run(gang.key, pod))
        if known is None or known.gang != ask:
            self._on_terms(gang)
        self._waiting.members_changed(gang)

    def on_controllers(self, keys: Iterable[GangKey], now: float) -> bool:
        """Updates quorums after these controllers changed; returns whether a gang's terms changed."""
        changed = [
            gang
            for key in keys
            if (gang := self._table.by_key.get(key)) is not None and self._terms(gang) != gang.terms
        ]
        for gang in changed:
            with self._quarantine.containing(gang.key):
                self._on_terms(gang)
                self._waiting.members_changed(gang)
                if gang.phase is not Phase.QUARANTINED:
                    self._on_arrival(gang, now)
                    self._barrier.open_if_complete(gang)
                    self._quorums.weigh(gang, now)
        return bool(changed)

    def _terms(self, gang: Gang) -> Terms:
        """A controller always smaller than the quorum keeps its gang waiting: it was not shrunk."""
        has_run = gang.roster.asked.with_node > 0
        return gang.terms.as_asked_by(gang.roster, self._planning.promises.parallel(gang.key) if has_run else None)

    def _on_terms(self, gang: Gang) -> None:
        gang.terms = self._terms(gang)

    def on_policies(self, namespace: str, now: float) -> None:
        """Gives up plans in the namespace that its changed policies do not allow.

        The policies may match only other pods, which must keep away from these."""
        for gang in [each for key, each in self._table.by_key.items() if key.namespace == namespace]:
            if gang.phase is Phase.PLANNED:
                with self._quarantine.containing(gang.key):
                    if not self._places.are_allowed(gang):
                        self._planning.plans.in_vain(gang, now)
                        self._planning.give_up(gang, now, GOVERNED_ANEW)
            self._waiting.changed(gang)

    def take_for_asleep(self, uid: PodUid) -> None:
        """The member was rejected, perhaps by an earlier run of the service, or by kube-scheduler."""
        gang = self._table.of(uid)
        if gang is None or gang.phase is Phase.QUARANTINED:
            return
        if uid not in gang.roster.bound and not gang.roster.members[uid].gated:
            gang.wait.rejected.add(uid)
            self._waiting.changed(gang)

    def not_evicted(self, uid: PodUid, now: float) -> None:
        """A planned eviction of the member failed: it counts again, unless it is being deleted."""
        with self._quarantine.containing(self._table.key_of(uid)):
            gang = self._table.of(uid)
            if gang is not None and uid in gang.roster.leaving and not gang.roster.members[uid].deleting:
                gang.roster.leaving.discard(uid)
                self._waiting.members_changed(gang)
                self._quorums.weigh(gang, now)

    # -- pods go -------------------------------------------------------------------------------------------------

    def remove(self, uid: PodUid, now: float) -> None:
        """Removes the deleted pod. Its holding is kept for a successor while the plan lives."""
        self.ended_well.forget(uid)
        with self._quarantine.containing(self._table.key_of(uid)):
            self._remove(uid, now)

    def _remove(self, uid: PodUid, now: float) -> None:
        gang = self._table.of(uid)
        if gang is None:
            return
        self._leave(gang, uid, now)
        self._table.leave(uid)
        self._places.forget_member(uid)
        gang.roster.drop(uid)
        gang.barrier.writing.pop(uid, None)
        gang.plan.displaced.pop(uid, None)
        self._on_terms(gang)
        self._waiting.members_changed(gang)
        if gang.roster.members:
            self._quorums.weigh(gang, now)
            # Other members may have waited for the one that left.
            self._barrier.open_if_complete(gang)
        else:
            self._end(gang, now)

    def _end(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.PLANNED:
            self._planning.plans.in_vain(gang, now)
        self._places.release(gang)
        self._table.turn_back(gang, list(gang.barrier.arrived), "the gang has no members left")
        self._quarantine.forget(gang)
        self._table.end(gang)
        self._places.forget(gang)

    def _finish(self, pod: Pod, gang: Gang | None, now: float) -> Gang | None:
        """Removes the ended pod. It still counts if it succeeded and was not being deleted."""
        if gang is None and isinstance(pod.gang, GangAsk):
            gang = self._table.by_key.get(pod.gang.key)
            # An earlier run may have left finished pods under the same name.
            if gang is not None and not any(same_run(pod, member) for member in gang.roster.members.values()):
                gang = None
        if gang is None:
            return None
        if pod.uid in self.ended_well.known:
            gang.roster.succeeded.add(pod.uid)
            self._waiting.members_changed(gang)
        if pod.uid in gang.roster.members:
            self._remove(pod.uid, now)
        else:
            self._quorums.weigh(gang, now)
        return self._table.by_key.get(gang.key)

    def _leave(self, gang: Gang, uid: PodUid, now: float) -> None:
        """The pod will not be placed: it leaves the barrier, and its holding becomes a vacant slot."""
        gang.wait.rejected.discard(uid)
        self._table.turn_back(gang, [uid] if uid in gang.barrier.arrived else [], "the pod has left the gang")
        holding = self._ledger.holding(uid)
        if holding is not None and holding.kind is not HoldingKind.BOUND and holding.owner == gang.key:
            self._pass_on(gang, holding, now)
        if gang.phase is Phase.PLANNED and not self._places.has_unbound(gang):
            # The other places were on deleted nodes, so no holding is left that could expire.
            self._planning.give_up(gang, now, NOTHING_LEFT)

    def _pass_on(self, gang: Gang, holding: Holding, now: float) -> None:
        if gang.phase is Phase.PLANNED and gang.plan.deadline is not None:
            self._places.hand_over(gang, holding, gang.plan.deadline)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            self._places.hand_over(gang, holding, now + gang.terms.timeout)
        else:
            self._ledger.release(holding.holder)


def same_run(finished: Pod, living: Pod) -> bool:
    """Whether the gang has had a living member from the one pod to the other.

    So it is if one controller created both, Escher bound both together, or one existed when Escher bound the other. The
    name proves nothing, nor does Escher's own clock."""
    if finished.owner is not None and living.owner is not None and finished.owner.uid == living.owner.uid:
        return True
    ended, lives = finished.attempt, living.attempt
    if ended is None:
        return False
    together = living.uid in ended.others or (lives is not None and lives.id == ended.id)
    return together or 0 < living.created <= finished.bound_at
