"""Plans: which gangs have one, until when each is left alone to carry it out, and whose is given up for whom; and
until when none is made for a gang that waits.

A gang's plans may come to nothing because of kube-scheduler: it would have none of the nodes for a member, or did not
bring all members to their places in time. That happens when it knows of a rule that we do not, or waits for something
else. A few times in a row it may be late news; then the gang is left alone for a while, twice as long each time, and is
planned at once only if its members have changed, or nodes have come or gone. Or a gang needs what a plan holds that is
left alone.

Knows times and counts. Must not know where a plan has its places, nor how one is made: see `planner`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass

from extender.core.backoff import doubled
from extender.core.gangs.state.gang import GIVES_WAY, GOVERNED_ANEW, NOT_BROUGHT, REFUSED_ELSEWHERE, Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.core.timers import earliest

FREE = 3
"""So many in a row cost nothing."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
LONGEST_UNASKED = 3600.0
"""Where kube-scheduler has not asked about every member: should it do so, that ends the pause."""
GIVES_WAY_SECONDS = 15.0
"""So long the room that a namespace's plans have kept idle is others' who wait for it: kube-scheduler's back-off is ten
at most."""
UNDISTURBED_SECONDS = 1.0
"""For so long a plan gives way to nobody but who may preempt: its members are on their way. kube-scheduler lets who was
turned back at the barrier wait for one to two seconds, and its room would stand idle."""


@dataclass(slots=True)
class Failed:
    """Plans of a gang that came to nothing in a row, while its members and the number of nodes are these."""

    changes: int
    node_count: int
    times: int = 0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """What came to nothing of one gang's plans: for kube-scheduler would have none of their nodes, or did not bring its
    members in time."""

    refused: Failed | None = None
    overdue: Failed | None = None


class Replans:
    """How often the plans of gangs came to nothing, for one reason."""

    def __init__(self) -> None:
        self._failed: dict[GangKey, Failed] = {}

    def failed(self, gang: Gang, node_count: int, now: float, longest: float = LONGEST_PAUSE) -> float | None:
        """Another plan came to nothing. Until when the gang is left alone, if it is; no longer than that."""
        known = self._failed.get(gang.key)
        if known is None or (known.changes, known.node_count) != (gang.roster.changes, node_count):
            known = self._failed[gang.key] = Failed(gang.roster.changes, node_count)
        known.times += 1
        if known.times <= FREE:
            return None
        known.until = now + doubled(FIRST_PAUSE, known.times - FREE - 1, longest)
        return known.until

    def pauses(self, gang: Gang, node_count: int, now: float) -> bool:
        """Whether the gang is to be left alone now: nothing has changed, and its pause is not over."""
        known = self._failed.get(gang.key)
        if known is None or now >= known.until:
            return False
        return (known.changes, known.node_count) == (gang.roster.changes, node_count)

    def end_pause(self, gang: Gang) -> None:
        """The gang may be planned at once. Should that come to nothing too, its next pause is longer all the same."""
        if gang.key in self._failed:
            self._failed[gang.key].until = 0.0

    def forget(self, gang: Gang) -> None:
        """It is bound, or is no more."""
        self._failed.pop(gang.key, None)

    def of(self, gang: Gang) -> Failed | None:
        return self._failed.get(gang.key)

    def resume(self, gang: Gang, failed: Failed | None) -> None:
        """So it was with the gang, of which nothing has changed since."""
        if failed is not None:
            self._failed[gang.key] = failed


class Plans:
    """`nodes`: all there are. `others_wait`: whether pods or gangs of other namespaces wait for room that plans of this
    gang's namespace hold: where this one's is, or was until just now."""

    def __init__(self, table: GangStore, nodes: Sized) -> None:
        self._table = table
        self._nodes = nodes
        self.left_alone: dict[GangKey, float] = {}
        """Until when: gangs that have a plan, and some that do no more."""
        self._refused = Replans()
        """Of plans of which kube-scheduler would have no node for a member."""
        self._overdue = Replans()
        """Of plans that ran out though all members existed."""
        self.others_wait: Callable[[GangKey], bool] = lambda gang: False
        self.known_anew: Collection[str] = ()
        """Namespaces for whose gangs nothing is planned, since not all of their pods are known by their policies."""
        self.giving_way: dict[str, float] = {}
        """Namespaces for whose gangs nothing is planned until then, nor saved: plans of theirs were not carried out."""
        self.version = 0
        """Another whenever these are others."""
        self._until: dict[GangKey, float] = {}
        """When each that is left without a plan is to be tried again, at least."""

    # -- whose plan stands ---------------------------------------------------------------------------------------

    def made(self, gang: Gang, now: float) -> None:
        """The gang has a plan from now on."""
        self.left_alone[gang.key] = now + UNDISTURBED_SECONDS

    def ended(self, gang: Gang) -> None:
        """It is carried out, or given up."""
        self.left_alone.pop(gang.key, None)

    def left_alone_until(self, gang: Gang) -> float:
        """For one that has a plan."""
        return self.left_alone[gang.key]

    def outranked_by(self, priority: int) -> list[Gang]:
        """Gangs with a plan and no member placed, all of whose members are of a lower priority: first those of which
        none has come to be bound, of these the last in turn."""
        by_key = self._table.by_key
        planned = [gang for key in self.left_alone if (gang := by_key[key]).phase is Phase.PLANNED]
        lower = [gang for gang in planned if gang.terms.worth < priority and not gang.roster.placed]
        return sorted(lower, key=lambda gang: (not gang.barrier.arrived, gang.turn), reverse=True)

    # -- for how long there is none ------------------------------------------------------------------------------

    def why_none(self, gang: Gang, now: float) -> str:
        """The constant reason for which the gang is left alone; empty if it is not."""
        if gang.key.namespace in self.known_anew:
            return GOVERNED_ANEW
        if gang.key.namespace in self.giving_way:
            return GIVES_WAY
        if self._refused.pauses(gang, len(self._nodes), now):
            return REFUSED_ELSEWHERE
        return NOT_BROUGHT if self._overdue.pauses(gang, len(self._nodes), now) else ""

    def pauses(self, gang: Gang) -> Pauses:
        return Pauses(self._refused.of(gang), self._overdue.of(gang))

    def resume_pauses(self, gang: Gang, pauses: Pauses) -> None:
        """They are the gang's."""
        self._refused.resume(gang, pauses.refused)
        self._overdue.resume(gang, pauses.overdue)

    def in_vain(self, gang: Gang, now: float) -> None:
        """Its plan ends, and none of it was carried out; or what was saved for it led to nothing. Where others wait for
        that room its namespace has no new ones until those that it has have ended too, and for a time after that: else
        its gangs could take turns in keeping it idle."""
        namespace = gang.key.namespace
        # Hundreds of plans may end at one moment, and to know who waits may cost much.
        if self.giving_way.get(namespace, now) >= now + GIVES_WAY_SECONDS or not self.others_wait(gang.key):
            return
        mine = (other for key in self.left_alone if (other := self._table.by_key.get(key)) is not None)
        ends = [other.plan.deadline or now for other in mine if other is not gang and other.key.namespace == namespace]
        self.giving_way[namespace] = max([now, *ends]) + GIVES_WAY_SECONDS
        self.version += 1

    def gives_way(self, gang: Gang) -> bool:
        """Whether nothing is planned for it now for that; it is tried again when that has ended."""
        until = self.giving_way.get(gang.key.namespace)
        if until is not None:
            self._until[gang.key] = max(until, self._until.get(gang.key, until))
        return until is not None

    def refused(self, gang: Gang, now: float) -> None:
        """kube-scheduler would have none of the plan's nodes for a member."""
        if (until := self._refused.failed(gang, len(self._nodes), now)) is not None:
            self._until[gang.key] = until

    def ran_out(self, gang: Gang, now: float) -> None:
        """Nothing is planned, and no room saved, for a while after plans that kube-scheduler did not carry out: else
        their room would be idle for ever."""
        longest = (
            LONGEST_PAUSE if all(pod.uid in gang.plan.asked for pod in gang.roster.unplaced()) else LONGEST_UNASKED
        )
        until = self._overdue.failed(gang, len(self._nodes), now, longest)
        if until is not None:
            self._until[gang.key] = gang.wait.saves_after = until

    def asked(self, gang: Gang) -> None:
        """kube-scheduler has asked about a member for the first time since a plan was made."""
        self._overdue.end_pause(gang)

    def hold_up(self, gang: Gang, until: float) -> None:
        """What the gang needs is left alone so long."""
        self._until[gang.key] = until

    def next_deadline(self) -> float | None:
        return earliest(*self._until.values(), *self.giving_way.values())

    def end_pauses(self, now: float) -> list[GangKey]:
        """Those whose pause has ended by now; each is told once."""
        for namespace in [namespace for namespace, until in self.giving_way.items() if until <= now]:
            del self.giving_way[namespace]
            self.version += 1
        ended = [key for key, until in self._until.items() if until <= now]
        for key in ended:
            del self._until[key]
        return ended

    def placed(self, gang: Gang) -> None:
        """It is bound: what failed before counts no more."""
        self.ended(gang)
        self._refused.forget(gang)
        self._overdue.forget(gang)

    def forget(self, gang: Gang) -> None:
        """It is no more."""
        self.placed(gang)
        self._until.pop(gang.key, None)
