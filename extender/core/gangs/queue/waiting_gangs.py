"""Waiting gangs: which gangs wait for room, what has changed for them, which members were rejected.

`queue` orders them, `requeue` tries them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.gangs.preemption.preemption import Preemption
from extender.core.gangs.queue.elastic_members import ElasticMembers
from extender.core.gangs.queue.queue import BackfillTrigger, Queue
from extender.core.gangs.state.gang import Gang, Turn
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.quota import PlaceQuota
from extender.core.gangs.state.state_machine import Phase, Step
from extender.core.ledger.audit import Violation
from extender.core.names import GangKey
from extender.core.safety_switches import SafetySwitches


@dataclass(eq=False)
class Waiting:
    _table: GangStore
    queue: Queue
    quota: PlaceQuota
    surplus: ElasticMembers
    preempting: Preemption
    _staying: ResidentPods
    _patience: BackfillTrigger
    _switches: SafetySwitches
    to_requeue: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Waiting gangs that have changed: they are requeued even if no node gained room."""
    unasked: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Complete gangs that kube-scheduler has not asked about since then, oldest first.

    It finds no node for any member, because other pods take each one that comes free."""

    _unasked_ordered_by: int = field(default=-1, init=False)
    _first_unasked: tuple[float, ...] | None = field(default=None, init=False)
    """The lowest order among `unasked`, or of a gang that was there before; None: not known."""

    def begin_anew(self) -> None:
        """Removes all gangs from the queue; `memory` restores those that wait."""
        self.to_requeue.clear()
        self.unasked.clear()
        self._unasked_ordered_by, self._first_unasked = -1, None
        for gang in list(self._table.by_key.values()):
            self.queue.leave(gang)

    def changed(self, gang: Gang) -> None:
        """Something about the gang has changed: it is requeued if it waits."""
        if gang.wait.rejected or self._is_watched(gang):
            self.to_requeue[gang.key] = None

    def _is_watched(self, gang: Gang) -> bool:
        return gang in self.queue or gang.key in self.quota.aside

    def members_changed(self, gang: Gang) -> None:
        """Its members, or which of them count, have changed."""
        gang.roster.changes += 1
        if gang.phase is not Phase.QUARANTINED:
            self.changed(gang)

    # -- gangs without a plan ------------------------------------------------------------------------------------

    def waits(self, gang: Gang, now: float) -> None:
        """The gang holds nothing. It waits for room, or for its members to exist."""
        missing = gang.missing
        gang.step(Step.LACKS_MEMBERS if missing else Step.HAS_MEMBERS)
        # kube-scheduler may never ask about it.
        if missing or gang.wait.rejected or self._is_watched(gang):
            self.unasked.pop(gang.key, None)
        elif gang.key not in self.unasked:
            self.unasked[gang.key] = now
            self.queue.order.place(gang)
            if self._first_unasked is not None:
                self._first_unasked = min(self._first_unasked, gang.wait.order)

    def enter(self, gang: Gang, now: float) -> None:
        """The gang waits for room after a rejection, or for gang places of its namespace."""
        since = self.unasked.pop(gang.key, now)
        if self.quota.sets_aside(gang):
            # The wait for room begins when the quota allows it some.
            gang.wait.since = None
            self.leave(gang)
            return
        if gang.wait.since is None:
            gang.wait.since = since
        self.queue.enter(gang)

    def leave(self, gang: Gang) -> None:
        """Removes the gang from the queue; no room is reserved for it."""
        if self.queue.saved.gang is gang:
            self.queue.saved.give_back()
        self.queue.leave(gang)

    def on_quota(self) -> None:
        """Requeues gangs whose quota state has changed, so that each waits for what it lacks now."""
        for gang in self.quota.take_news(self._table.by_key.get, self._turn):
            if gang.holds_a_plan:
                self.quota.leave(gang)
                if gang.wait.rejected:
                    self.surplus.planned_anew(gang)
                    self.surplus.has(gang)
            else:
                self.to_requeue[gang.key] = None

    def _turn(self, gang: Gang) -> Turn:
        """The turn of a gang that is in no queue, with its present order."""
        self.queue.order.place(gang)
        return gang.turn

    # -- gangs with a plan, or that ended ------------------------------------------------------------------------

    def has_a_plan(self, gang: Gang) -> None:
        """The gang has a plan: it waits no more, and has passed gangs before it that still wait."""
        gang.wait.since, gang.wait.bypasses = None, 0
        gang.wait.told_of.clear()
        self.surplus.planned_anew(gang)
        self.ended(gang)
        self.queue.passed_by(gang)

    def ended(self, gang: Gang) -> None:
        self.unasked.pop(gang.key, None)
        self.quota.aside.pop(gang.key, None)
        self.queue.leave(gang)

    def forget(self, gang: Gang) -> None:
        self.ended(gang)
        self.quota.leave(gang)
        self.preempting.ended(gang)
        self.to_requeue.pop(gang.key, None)

    # -- gangs that kube-scheduler does not ask about ------------------------------------------------------------

    def next_unasked(self) -> tuple[GangKey, float] | None:
        """The gang not asked about for longest, and when the patience with that ends."""
        for key, since in self.unasked.items():
            return key, since + self._patience.seconds
        return None

    def enter_unasked(self, key: GangKey, now: float) -> None:
        """Queues the gang as if a member had been rejected, unless its namespace is only observed."""
        if self._switches.observes(key.namespace):
            del self.unasked[key]
        else:
            self.enter(self._table.by_key[key], now)
            self.to_requeue[key] = None

    def preferred_to(self, gang: Gang) -> list[Gang]:
        """The `unasked` gangs that policies put before this one.

        For all others, kube-scheduler may well ask about this gang first."""
        # If no policy ever ordered gangs, there is no need to ask about all.
        version = self.queue.order.version()
        if not self.unasked or not (version or any(gang.wait.order)):
            return []
        if self._unasked_ordered_by != version:
            self._unasked_ordered_by, self._first_unasked = version, None
            self.queue.fits.work.take(len(self.unasked))
            for key in self.unasked:
                self.queue.order.place(self._table.by_key[key])
        if self._first_unasked is None:
            self._first_unasked = min(self._table.by_key[key].wait.order for key in self.unasked)
        if self._first_unasked >= gang.wait.order:
            return []
        self._first_unasked = None
        others = [self._table.by_key[key] for key in self.unasked if not self._switches.observes(key.namespace)]
        return [o for o in others if o.terms.claims >= gang.terms.claims and o.wait.order < gang.wait.order]

    def violations(self) -> Iterator[Violation]:
        """Waiting gangs with a whole quorum that nothing will try again, and defects of the queue."""
        yield from self.queue.violations()
        yield from self._staying.violations()
        for gang in self._table.by_key.values():
            watched = (
                self._switches.observes(gang.key.namespace)
                or self._is_watched(gang)
                or gang.key in self.unasked
                or gang.key in self.to_requeue
            )
            waits = gang.phase in (Phase.GATHERING, Phase.WAITING) and gang.needed and not gang.missing
            if waits and not watched:
                yield Violation("gang_not_watched", f"{gang.key} waits, but will never be tried again")
