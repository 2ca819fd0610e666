"""Quorums: whether that of a gang is bound, exists, or is proven to be bound in part; and what follows from it.

A part that is proven has a time to be completed, and is evicted then, so that none of it is bound instead of a part. Of
fewer than a quorum that may have run before, somebody is told, and no more. Must not know how a pod is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.backoff import doubled
from extender.core.cluster import Pod
from extender.core.gangs.cycle.partial_gangs import Proof, misleading, proven_part
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import (
    TOO_LATE,
    DeadlineSet,
    EvictMembers,
    Gang,
    GangBound,
    GangInDoubt,
    GangInPart,
    VoidAttempts,
)
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Past, Phase, Standing, Step
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches, Withheld
from extender.core.timers import earliest

LONGEST_PAUSE = 600.0
"""Seconds, at most, for which a part is let be that could not be evicted; or the gang's own time, if that is longer."""


@dataclass(eq=False)
class Quorums:
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _brake: SafetySwitches
    in_part: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs of which a part is bound, as is proven, and until when the rest may follow."""
    in_doubt: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs of which fewer than the quorum are bound, and of which nobody can know whether they ran; and when
    that is to be told."""
    _untold: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs in part that nobody has been told of, and how many seconds the rest has."""

    # -- members, or what they ask for, have changed -------------------------------------------------------------

    def weigh(self, gang: Gang, now: float) -> None:
        """It is in the phase that its members, placed or not, make it be in."""
        if gang.phase is Phase.QUARANTINED:
            return
        if gang.phase is Phase.BOUND and gang.needed:
            # A member of the surplus may be on its way: it is needed for the quorum now, and planned with the rest.
            gang.step(Step.QUORUM_LOST)
            self._planning.let_go(gang, now, "the gang needs more members than before")
        if gang.roster.placed and not gang.needed:
            # Whatever becomes of those whose Bindings are still being written.
            gang.remember(Past.QUORUM_BOUND)
        if gang.barrier.writing:
            return
        if gang.roster.placed and not gang.needed:
            self._has_its_quorum(gang, now)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            if gang.roster.placed:
                gang.step(Step.HALTED)
            else:
                # The API server refused the Bindings: pods that were evicted for the gang left in vain.
                self._waiting.preempting.ran_out(gang, now)
                self._planning.give_up(gang, now, "no member of the gang could be bound")
        elif gang.phase in (Phase.GATHERING, Phase.WAITING):
            self._waiting.waits(gang, now)
        if not gang.roster.placed:
            gang.remember(Past.NOBODY_LEFT)
        if not gang.roster.bound:
            gang.barrier.trial, gang.barrier.given_up = None, 0
        self._heed_part(gang, now)

    def _has_its_quorum(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.BOUND:
            return
        if gang.phase is Phase.PLANNED and next(gang.roster.unplaced(), None) is not None:
            # The quorum became less, or was met otherwise: who has places may come for others as often as it does.
            self._planning.plans.in_vain(gang, now)
        gang.step(Step.QUORUM_BOUND)
        if misled := _misleading(gang):
            self._table.effects.append(VoidAttempts(gang.key, misled))
        gang.plan.deadline, gang.barrier.trial, gang.plan.timed_out = None, None, 0
        gang.barrier.given_up = 0
        self._planning.placed(gang)
        self._waiting.ended(gang)
        self._places.release_vacant(gang)
        self._waiting.preempting.placed(gang)
        self._table.effects.append(GangBound(gang.key, now - gang.roster.first_seen))

    # -- parts, and doubts ---------------------------------------------------------------------------------------

    def _heed_part(self, gang: Gang, now: float) -> None:
        """A gang that is proven to be bound in part has a time to be completed."""
        proof = part_of(gang)
        if proof is None:
            self.in_part.pop(gang.key, None)
        elif gang.key not in self.in_part:
            self._untold[gang.key] = seconds = _time_to_follow(gang)
            self.in_part[gang.key] = now + seconds
        if proof is not None or not _unsettled(gang) or not gang.roster.stays:
            self.in_doubt.pop(gang.key, None)
        elif gang.key not in self.in_doubt:
            self.in_doubt[gang.key] = now + gang.terms.timeout
            self._table.effects.append(DeadlineSet(gang.key))

    def announce(self) -> None:
        """Gangs that are bound in part are told of; not earlier, for a list tells of its pods one by one."""
        untold, self._untold = self._untold, {}
        for key, seconds in untold.items():
            gang = self._table.by_key.get(key)
            if gang is not None and key in self.in_part and not self._brake.observes(key.namespace):
                self._table.effects.append(GangInPart(key, gang.terms.quorum, tuple(gang.roster.staying()), seconds))

    def next_deadline(self) -> float | None:
        return earliest(*self.in_part.values(), *self.in_doubt.values())

    def not_completed(self, now: float) -> list[GangKey]:
        """Gangs bound in part whose time is over."""
        return [key for key, until in self.in_part.items() if until <= now]

    def give_up_part(self, key: GangKey, now: float) -> None:
        """It was not completed in time: its part is to be evicted, so that none of it is bound instead of a part.

        Who is evicted counts for nothing from this moment. What is not gone is to be evicted again, after longer and
        longer.
        """
        gang = self._table.by_key[key]
        self.in_part[gang.key] = now + _time_to_follow(gang)
        proof = part_of(gang)
        if proof is None:
            return
        if self._brake.allows(Act.EVICT_PART, gang.key.namespace):
            self._table.effects.append(EvictMembers(gang.key, gang.terms.quorum, proof.bound, proof))
            gang.roster.leaving.update(pod.uid for pod in proof.bound)
            gang.barrier.given_up += 1
        else:
            about = (*map(str, proof.bound), str(proof))
            self._table.effects.append(Withheld(Act.EVICT_PART, gang.key.namespace, gang.key, about))
        self._waiting.members_changed(gang)
        if gang.phase not in (Phase.GATHERING, Phase.WAITING):
            gang.plan.timed_out += gang.phase is Phase.PLANNED
            self._planning.give_up(gang, now, TOO_LATE)
        self.weigh(gang, now)

    def tell_of_doubts(self, now: float) -> None:
        """Each is told of once."""
        for key in [key for key, until in self.in_doubt.items() if until <= now]:
            self.in_doubt[key] = float("inf")
            gang = self._table.by_key[key]
            if not self._brake.observes(key.namespace):
                self._table.effects.append(GangInDoubt(key, gang.terms.quorum, tuple(gang.roster.staying())))

    def forget(self, gang: Gang) -> None:
        """It is no more."""
        for known in (self.in_part, self.in_doubt, self._untold):
            known.pop(gang.key, None)


def _time_to_follow(gang: Gang) -> float:
    """Seconds for those that lack; twice as long each time that the part could not be evicted, after the first."""
    return doubled(gang.terms.timeout, max(0, gang.barrier.given_up - 1), max(gang.terms.timeout, LONGEST_PAUSE))


def part_of(gang: Gang) -> Proof | None:
    """What proves that those who are bound are a part of a quorum that was never whole. O(members), if so many are not
    bound that there may be a proof."""
    roster, trial = gang.roster, gang.barrier.trial
    not_bound = len(roster.members) - len(roster.bound) + len(trial.refused if trial is not None else ())
    if not roster.asked.spare or roster.asked.spare[0] >= not_bound or not _unsettled(gang):
        return None
    return proven_part(roster.staying(), roster.unbound(), trial, gang.terms.quorum)


def _unsettled(gang: Gang) -> bool:
    """Whether fewer than its quorum are bound, no Binding is being written, and it is not known to have run."""
    ran = gang.standing is Standing.RAN
    return bool(gang.roster.bound and gang.needed and not gang.barrier.writing and not ran)


def _misleading(gang: Gang) -> tuple[Pod, ...]:
    """Its quorum is bound: those whose attempt would yet prove, if they lost others, that it never was whole."""
    roster = gang.roster
    return tuple(misleading(roster.staying(), roster.unbound().keys(), gang.barrier.trial).values())
