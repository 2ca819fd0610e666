"""Members: who belongs to which gang, as their pods come, change, end and go.

What a member held is kept for a successor while the gang's plan lives. Must not know how a plan is made, nor who asks
for a node: see `admission`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.cycle.permit_barrier import Barrier
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quorum import Quorums
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import GOVERNED_ANEW, NOTHING_LEFT, Gang
from extender.core.gangs.state.gang_state import Terms
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.quarantine import Quarantine
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.kube.names import PodUid


class EndedWell:
    """Pods that ran to their end and that the API server still has, by the gang that they were members of.

    A gang ends with its last living member. Where that one has failed, and its controller makes another, a gang begins
    anew whose quorum those have a part in who had ended well before; as it does where a service that is started anew
    finds them in its first list.
    """

    def __init__(self) -> None:
        self._of: dict[GangKey, dict[PodUid, Pod]] = {}
        self._keys: dict[PodUid, GangKey] = {}

    def heed(self, pod: Pod) -> None:
        """The pod is there and looks like this. It ended well if it succeeded, and not because somebody deleted it."""
        self.forget(pod.uid)
        ended_well = pod.finished and pod.succeeded and pod.node is not None and not pod.deleting
        if ended_well and isinstance(pod.gang, GangAsk):
            self._keys[pod.uid] = pod.gang.key
            self._of.setdefault(pod.gang.key, {})[pod.uid] = pod

    def forget(self, uid: PodUid) -> None:
        """It is deleted."""
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
        """Those of the gang that are of the same run as the living member."""
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

    # -- they come -----------------------------------------------------------------------------------------------

    def observe(self, pod: Pod, now: float) -> Gang | None:
        """The pod is known as its gang's member, as it is now. Its gang, or None if it has none (any more)."""
        with self._quarantine.containing(self._table.key_asked_for(pod)):
            return self._observe(pod, now)
        return self._table.of(pod.uid)

    def _observe(self, pod: Pod, now: float) -> Gang | None:
        former = self._table.of(pod.uid)
        self.ended_well.heed(pod)
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
            self._heed_arrival(gang, now)
        self._barrier.open_if_complete(gang)
        self._quorums.weigh(gang, now)
        return gang

    def _heed_arrival(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.PLANNED and not gang.missing:
            self._planning.all_are_there(gang, now)

    def _take_in(self, gang: Gang, pod: Pod, ask: GangAsk, now: float) -> None:
        """The gang knows it as it is now."""
        known = gang.roster.members.get(pod.uid)
        if known is not None and pod.at_our_gate and not known.at_our_gate:
            # A gate never comes back: this is older news.
            pod = replace(pod, at_our_gate=False)
        if known == pod:
            return
        gang.roster.take(pod)
        anew = known is not None and known.governed != pod.governed and self._ledger.holding(pod.uid) is not None
        if anew and gang.phase is Phase.PLANNED:
            # What was planned was for what it required then.
            self._planning.plans.in_vain(gang, now)
            self._planning.give_up(gang, now, GOVERNED_ANEW)
        if pod.at_our_gate and not pod.gated and (known is None or known.gated):
            # As if filter had turned it away: it waits to be woken.
            gang.wait.rejected.add(pod.uid)
        if known is None:
            gang.roster.succeeded.update(self.ended_well.of_the_run(gang.key, pod))
        if known is None or known.gang != ask:
            self._heed_terms(gang)
        self._waiting.members_changed(gang)

    def heed_controllers(self, keys: Iterable[GangKey], now: float) -> bool:
        """The controllers of these gangs may have another number of pods at a time. Whether that is so for one of the
        gangs, whose quorum is then another."""
        changed = [
            gang
            for key in keys
            if (gang := self._table.by_key.get(key)) is not None and self._terms(gang) != gang.terms
        ]
        for gang in changed:
            with self._quarantine.containing(gang.key):
                self._heed_terms(gang)
                self._waiting.members_changed(gang)
                if gang.phase is not Phase.QUARANTINED:
                    self._heed_arrival(gang, now)
                    self._barrier.open_if_complete(gang)
                    self._quorums.weigh(gang, now)
        return bool(changed)

    def _terms(self, gang: Gang) -> Terms:
        """A controller that was always smaller than the quorum keeps its gang waiting: nobody has shrunk that."""
        has_run = gang.roster.asked.with_node > 0
        return gang.terms.as_asked_by(gang.roster, self._planning.promises.parallel(gang.key) if has_run else None)

    def _heed_terms(self, gang: Gang) -> None:
        gang.terms = self._terms(gang)

    def heed_policies(self, namespace: str, now: float) -> None:
        """Policies of the namespace have changed: a plan of gangs there that they do not allow any more is given up.
        They may govern others alone, who keep away from these."""
        for gang in [each for key, each in self._table.by_key.items() if key.namespace == namespace]:
            if gang.phase is Phase.PLANNED:
                with self._quarantine.containing(gang.key):
                    if not self._places.are_allowed(gang):
                        self._planning.plans.in_vain(gang, now)
                        self._planning.give_up(gang, now, GOVERNED_ANEW)
            self._waiting.changed(gang)

    def take_for_asleep(self, uid: PodUid) -> None:
        """The member was turned away, perhaps by an earlier life of the service, or by kube-scheduler itself."""
        gang = self._table.of(uid)
        if gang is None or gang.phase is Phase.QUARANTINED:
            return
        if uid not in gang.roster.bound and not gang.roster.members[uid].gated:
            gang.wait.rejected.add(uid)
            self._waiting.changed(gang)

    def not_evicted(self, uid: PodUid, now: float) -> None:
        """An eviction of the member that was to be is not: it counts again, unless it is about to go anyway."""
        with self._quarantine.containing(self._table.key_of(uid)):
            gang = self._table.of(uid)
            if gang is not None and uid in gang.roster.leaving and not gang.roster.members[uid].deleting:
                gang.roster.leaving.discard(uid)
                self._waiting.members_changed(gang)
                self._quorums.weigh(gang, now)

    # -- they go -------------------------------------------------------------------------------------------------

    def remove(self, uid: PodUid, now: float) -> None:
        """The pod is no member any more: it is deleted. What it held is kept for a successor while the plan lives."""
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
        self._heed_terms(gang)
        self._waiting.members_changed(gang)
        if gang.roster.members:
            self._quorums.weigh(gang, now)
            # Others may have waited for the one that has left.
            self._barrier.open_if_complete(gang)
        else:
            self._end(gang, now)

    def _end(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.PLANNED:
            self._planning.plans.in_vain(gang, now)
        self._places.release(gang)
        self._table.turn_back(gang, list(gang.barrier.arrived), "the gang has no members any more")
        self._quarantine.forget(gang)
        self._table.end(gang)
        self._places.forget(gang)

    def _finish(self, pod: Pod, gang: Gang | None, now: float) -> Gang | None:
        """It has ended. One that ended well, and not because somebody deleted it, counts on; any other for nothing."""
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
        """The pod will not be placed: it gives up its place at the barrier, and its holding becomes a slot for
        another."""
        gang.wait.rejected.discard(uid)
        self._table.turn_back(gang, [uid] if uid in gang.barrier.arrived else [], "the pod has left the gang")
        holding = self._ledger.holding(uid)
        if holding is not None and holding.kind is not HoldingKind.BOUND and holding.owner == gang.key:
            self._pass_on(gang, holding, now)
        if gang.phase is Phase.PLANNED and not self._places.has_unbound(gang):
            # Those places were on nodes that are gone: nothing is held any more that would run out.
            self._planning.give_up(gang, now, NOTHING_LEFT)

    def _pass_on(self, gang: Gang, holding: Holding, now: float) -> None:
        if gang.phase is Phase.PLANNED and gang.plan.deadline is not None:
            self._places.hand_over(gang, holding, gang.plan.deadline)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            self._places.hand_over(gang, holding, now + gang.terms.timeout)
        else:
            self._ledger.release(holding.holder)


def same_run(finished: Pod, living: Pod) -> bool:
    """Whether one controller made both, or we bound both together, or the one was there when we bound the other: then
    the gang has had a living member ever since. The same name says nothing, nor does our own clock."""
    if finished.owner is not None and living.owner is not None and finished.owner.uid == living.owner.uid:
        return True
    ended, lives = finished.attempt, living.attempt
    if ended is None:
        return False
    together = living.uid in ended.others or (lives is not None and lives.id == ended.id)
    return together or 0 < living.created <= finished.bound_at
