"""Quorums: whether a gang's quorum is bound, exists, or is proven to be bound only in part.

A proven partial gang has a time to be completed, and is then evicted: no members are bound instead of a part. If fewer
than a quorum are bound but the gang may have run before, that is only reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.common.backoff import doubled
from extender.core.common.timers import earliest
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
from extender.core.gangs.state.partial_gangs import Proof, misleading, proven_part
from extender.core.gangs.state.state_machine import Past, Phase, Standing, Step
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches, Withheld

LONGEST_PAUSE = 600.0
"""Longest pause in seconds after a failed eviction; or the gang's time-out, if that is longer."""


@dataclass(eq=False)
class Quorums:
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _switches: SafetySwitches
    in_part: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs proven to be bound in part, and until when the rest may follow."""
    in_doubt: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs with fewer than the quorum bound that may or may not have run, and when to report them."""
    _untold: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Partial gangs not reported yet, and the seconds that the rest has."""

    # -- members, or what they ask for, have changed -------------------------------------------------------------

    def weigh(self, gang: Gang, now: float) -> None:
        """Moves the gang to the phase that follows from its members, placed or not."""
        if gang.phase is Phase.QUARANTINED:
            return
        if gang.phase is Phase.BOUND and gang.needed:
            # An elastic member may be in bind. The quorum needs it now, and it is planned with the rest.
            gang.step(Step.QUORUM_LOST)
            self._planning.let_go(gang, now, "the gang needs more members than before")
        if gang.roster.placed and not gang.needed:
            # This holds whatever becomes of the Bindings still being written.
            gang.remember(Past.QUORUM_BOUND)
        if gang.barrier.writing:
            return
        if gang.roster.placed and not gang.needed:
            self._has_its_quorum(gang, now)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            if gang.roster.placed:
                gang.step(Step.HALTED)
            else:
                # The API server refused the Bindings, so the evictions for the gang were without effect.
                if gang.barrier.trial is None or not gang.barrier.trial.unsure:
                    self._waiting.preempting.ran_out(gang, now)
                self._planning.give_up(gang, now, "no member of the gang could be bound")
        elif gang.phase in (Phase.GATHERING, Phase.WAITING):
            self._waiting.waits(gang, now)
        if not gang.roster.placed:
            gang.remember(Past.NOBODY_LEFT)
        if not gang.roster.bound:
            gang.barrier.trial, gang.barrier.given_up = None, 0
        self._on_part(gang, now)

    def _has_its_quorum(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.BOUND:
            return
        if gang.phase is Phase.PLANNED and next(gang.roster.unplaced(), None) is not None:
            # The quorum shrank or was met otherwise. The plan's room was idle, and a gang could repeat that.
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

    # -- partial gangs and doubts --------------------------------------------------------------------------------

    def _on_part(self, gang: Gang, now: float) -> None:
        """Starts or ends the time in which a proven partial gang may be completed."""
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
        """Reports partial gangs, once a list is complete, because a list shows pods one by one."""
        untold, self._untold = self._untold, {}
        for key, seconds in untold.items():
            gang = self._table.by_key.get(key)
            if gang is not None and key in self.in_part and not self._switches.observes(key.namespace):
                self._table.effects.append(GangInPart(key, gang.terms.quorum, tuple(gang.roster.staying()), seconds))

    def next_deadline(self) -> float | None:
        return earliest(*self.in_part.values(), *self.in_doubt.values())

    def not_completed(self, now: float) -> list[GangKey]:
        """Partial gangs whose time is over."""
        return [key for key, until in self.in_part.items() if until <= now]

    def give_up_part(self, key: GangKey, now: float) -> None:
        """The gang was not completed in time: evicts the bound part, so that no members are bound.

        Evicted members count no more from this moment. Those that remain are evicted again, after longer and longer
        pauses.
        """
        gang = self._table.by_key[key]
        self.in_part[gang.key] = now + _time_to_follow(gang)
        proof = part_of(gang)
        if proof is None:
            return
        if self._switches.allows(Act.EVICT_PART, gang.key.namespace):
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

    def report_doubts(self, now: float) -> None:
        """Reports each doubt once."""
        for key in [key for key, until in self.in_doubt.items() if until <= now]:
            self.in_doubt[key] = float("inf")
            gang = self._table.by_key[key]
            if not self._switches.observes(key.namespace):
                self._table.effects.append(GangInDoubt(key, gang.terms.quorum, tuple(gang.roster.staying())))

    def forget(self, gang: Gang) -> None:
        for known in (self.in_part, self.in_doubt, self._untold):
            known.pop(gang.key, None)


def _time_to_follow(gang: Gang) -> float:
    """Seconds for the missing members; doubled for each failed eviction after the first."""
    return doubled(gang.terms.timeout, max(0, gang.barrier.given_up - 1), max(gang.terms.timeout, LONGEST_PAUSE))


def part_of(gang: Gang) -> Proof | None:
    """The proof that the bound members belong to a quorum that never was whole, else None.

    O(members), if enough are not bound that a proof may exist."""
    roster, trial = gang.roster, gang.barrier.trial
    not_bound = len(roster.members) - len(roster.bound) + len(trial.refused if trial is not None else ())
    if not roster.asked.spare or roster.asked.spare[0] >= not_bound or not _unsettled(gang):
        return None
    return proven_part(roster.staying(), roster.unbound(), trial, gang.terms.quorum)


def _unsettled(gang: Gang) -> bool:
    """Whether fewer than its quorum are bound, no Binding is under way, and it may never have run."""
    return bool(gang.roster.bound and gang.needed and not gang.barrier.writing and gang.standing is not Standing.RAN)


def _misleading(gang: Gang) -> tuple[Pod, ...]:
    """Members of a bound quorum whose record would prove after losses that it never was whole."""
    roster = gang.roster
    return tuple(misleading(roster.staying(), roster.unbound().keys(), gang.barrier.trial).values())
