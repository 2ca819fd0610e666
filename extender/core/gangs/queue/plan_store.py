"""Plans: which gangs have one, and until when a waiting gang gets none.

Plans can fail because of kube-scheduler: it accepts none of the nodes for a member, or does not bring all members to
their places in time. Then kube-scheduler applies a rule that Escher does not have, or waits for something else. A few
failures in a row may be due to late events. After those the gang is paused, twice as long each time. It is planned
earlier only if its members changed, or nodes came or went. A gang may also need room of a plan that is still
undisturbed.

`planner` makes the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass

from extender.core.common.backoff import doubled
from extender.core.common.timers import earliest
from extender.core.gangs.state.gang import GIVES_WAY, GOVERNED_ANEW, NOT_BROUGHT, REFUSED_ELSEWHERE, Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey

FREE = 3
"""Number of failures in a row that cause no pause."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
LONGEST_UNASKED = 3600.0
"""Longest pause if kube-scheduler has not asked about every member; asking ends the pause."""
GIVES_WAY_SECONDS = 15.0
"""Seconds in which room that plans kept idle is left to others: the longest back-off is 10 seconds."""
UNDISTURBED_SECONDS = 1.0
"""For this time a new plan yields only to gangs that may preempt: its members are on their way.

kube-scheduler makes a pod turned back at the barrier wait 1 to 2 seconds. Its room would be idle."""


@dataclass(slots=True)
class Failed:
    """Failed plans of a gang in a row, while its members and the number of nodes are these."""

    changes: int
    node_count: int
    times: int = 0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """Failed plans of one gang. `refused`: kube-scheduler accepted none of the nodes.

    `overdue`: kube-scheduler did not bring its members in time."""

    refused: Failed | None = None
    overdue: Failed | None = None


class Replans:
    """How often plans of gangs failed for one reason."""

    def __init__(self) -> None:
        self._failed: dict[GangKey, Failed] = {}

    def failed(self, gang: Gang, node_count: int, now: float, longest: float = LONGEST_PAUSE) -> float | None:
        """Counts a failed plan. Returns until when the gang is paused, if it is."""
        known = self._failed.get(gang.key)
        if known is None or (known.changes, known.node_count) != (gang.roster.changes, node_count):
            known = self._failed[gang.key] = Failed(gang.roster.changes, node_count)
        known.times += 1
        if known.times <= FREE:
            return None
        known.until = now + doubled(FIRST_PAUSE, known.times - FREE - 1, longest)
        return known.until

    def pauses(self, gang: Gang, node_count: int, now: float) -> bool:
        """Whether the gang is paused now: nothing has changed, and its pause is not over."""
        known = self._failed.get(gang.key)
        if known is None or now >= known.until:
            return False
        return (known.changes, known.node_count) == (gang.roster.changes, node_count)

    def end_pause(self, gang: Gang) -> None:
        """Ends the pause. If the next plan fails too, its pause is longer nevertheless."""
        if gang.key in self._failed:
            self._failed[gang.key].until = 0.0

    def forget(self, gang: Gang) -> None:
        """Forgets the failures of a gang that is bound or has ended."""
        self._failed.pop(gang.key, None)

    def of(self, gang: Gang) -> Failed | None:
        return self._failed.get(gang.key)

    def resume(self, gang: Gang, failed: Failed | None) -> None:
        """Restores the failures of a gang that has not changed since."""
        if failed is not None:
            self._failed[gang.key] = failed


class Plans:
    """`nodes`: all nodes. `others_wait`: whether other namespaces wait for room of a gang's plans.

    That is room of plans of the gang's namespace, where the gang's own room is, or was until just now."""

    def __init__(self, table: GangStore, nodes: Sized) -> None:
        self._table = table
        self._nodes = nodes
        self.left_alone: dict[GangKey, float] = {}
        """By gang with a plan, and some whose plan has ended: until when the plan is undisturbed."""
        self._refused = Replans()
        """Failures because kube-scheduler accepted no node of the plan for a member."""
        self._overdue = Replans()
        """Failures because plans timed out although all members existed."""
        self.others_wait: Callable[[GangKey], bool] = lambda gang: False
        self.known_anew: Collection[str] = ()
        """Namespaces whose policies do not have all pods yet: nothing is planned for their gangs."""
        self.giving_way: dict[str, float] = {}
        """Namespaces whose plans were not carried out: nothing is planned or reserved until then."""
        self.version = 0
        """Changes whenever `giving_way` changes."""
        self._until: dict[GangKey, float] = {}
        """For each gang left without a plan: the latest moment at which it is tried again."""

    # -- gangs with a plan ---------------------------------------------------------------------------------------

    def made(self, gang: Gang, now: float) -> None:
        """The gang has a plan from now on."""
        self.left_alone[gang.key] = now + UNDISTURBED_SECONDS

    def ended(self, gang: Gang) -> None:
        """The plan is carried out or given up."""
        self.left_alone.pop(gang.key, None)

    def left_alone_until(self, gang: Gang) -> float:
        """For a gang that has a plan: until when it is undisturbed."""
        return self.left_alone[gang.key]

    def outranked_by(self, priority: int) -> list[Gang]:
        """Gangs with a plan, no member placed, and only members of lower priority.

        Gangs without a member at the barrier come first, among these the last in turn."""
        by_key = self._table.by_key
        planned = [gang for key in self.left_alone if (gang := by_key[key]).phase is Phase.PLANNED]
        lower = [gang for gang in planned if gang.terms.worth < priority and not gang.roster.placed]
        return sorted(lower, key=lambda gang: (not gang.barrier.arrived, gang.turn), reverse=True)

    # -- gangs without a plan ------------------------------------------------------------------------------------

    def why_none(self, gang: Gang, now: float) -> str:
        """The constant reason why no plan is made for the gang; empty if there is none."""
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
        self._refused.resume(gang, pauses.refused)
        self._overdue.resume(gang, pauses.overdue)

    def in_vain(self, gang: Gang, now: float) -> None:
        """A plan or reservation ended without effect: pauses the namespace if others wait for room.

        It gets no plans until its present plans have ended, plus `GIVES_WAY_SECONDS`. Else its gangs could take turns
        in keeping the room idle."""
        namespace = gang.key.namespace
        # Hundreds of plans may end at one moment, and `others_wait` may be expensive.
        if self.giving_way.get(namespace, now) >= now + GIVES_WAY_SECONDS or not self.others_wait(gang.key):
            return
        mine = (other for key in self.left_alone if (other := self._table.by_key.get(key)) is not None)
        ends = [other.plan.deadline or now for other in mine if other is not gang and other.key.namespace == namespace]
        self.giving_way[namespace] = max([now, *ends]) + GIVES_WAY_SECONDS
        self.version += 1

    def gives_way(self, gang: Gang) -> bool:
        """Whether its namespace is paused; the gang is then tried again when the pause ends."""
        until = self.giving_way.get(gang.key.namespace)
        if until is not None:
            self._until[gang.key] = max(until, self._until.get(gang.key, until))
        return until is not None

    def refused(self, gang: Gang, now: float) -> None:
        """kube-scheduler accepted none of the plan's nodes for a member."""
        if (until := self._refused.failed(gang, len(self._nodes), now)) is not None:
            self._until[gang.key] = until

    def ran_out(self, gang: Gang, now: float) -> None:
        """Pauses a gang whose plans kube-scheduler does not carry out: else room is idle for ever."""
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
        """The room that the gang needs is undisturbed until then."""
        self._until[gang.key] = until

    def next_deadline(self) -> float | None:
        return earliest(*self._until.values(), *self.giving_way.values())

    def end_pauses(self, now: float) -> list[GangKey]:
        """The gangs whose pause has ended by now; each is returned once."""
        for namespace in [namespace for namespace, until in self.giving_way.items() if until <= now]:
            del self.giving_way[namespace]
            self.version += 1
        ended = [key for key, until in self._until.items() if until <= now]
        for key in ended:
            del self._until[key]
        return ended

    def placed(self, gang: Gang) -> None:
        """The gang is bound: earlier failures no longer count."""
        self.ended(gang)
        self._refused.forget(gang)
        self._overdue.forget(gang)

    def forget(self, gang: Gang) -> None:
        self.placed(gang)
        self._until.pop(gang.key, None)
