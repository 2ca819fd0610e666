"""Gangs that wait for room: which they are, what has changed for them, and who of their members was turned away.

Knows which gangs have no plan, and in which order they have their turn (`queue`). Must not know how one is planned, nor
when they are tried: see `requeue`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from extender.core.audit import Violation
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.gangs.preemption.preemption import Preemption
from extender.core.gangs.queue.elastic_members import ElasticMembers
from extender.core.gangs.queue.queue import BackfillTrigger, Queue
from extender.core.gangs.state.gang import Gang, Turn
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.quota import PlaceQuota
from extender.core.gangs.state.state_machine import Phase, Step
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
    _brake: SafetySwitches
    stirred: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs that wait and of which something has changed: to be settled, though no node has gained room."""
    unasked: dict[GangKey, float] = field(default_factory=dict, init=False)
    """Gangs whose members all exist, and that kube-scheduler has not asked about since then, oldest first: it finds
    no node for any of them, for others take each one that comes free."""

    _unasked_ordered_by: int = field(default=-1, init=False)
    _first_unasked: tuple[float, ...] | None = field(default=None, init=False)
    """Where the policies have the first of them, or one that was there before; None: it is not known."""

    def begin_anew(self) -> None:
        """Nobody waits: whoever remembers who does will say so."""
        self.stirred.clear()
        self.unasked.clear()
        self._unasked_ordered_by, self._first_unasked = -1, None
        for gang in list(self._table.by_key.values()):
            self.queue.leave(gang)

    def changed(self, gang: Gang) -> None:
        """Something about it has changed: if it waits, it is to be settled."""
        if gang.wait.rejected or self._is_watched(gang):
            self.stirred[gang.key] = None

    def _is_watched(self, gang: Gang) -> bool:
        return gang in self.queue or gang.key in self.quota.aside

    def members_changed(self, gang: Gang) -> None:
        """Its members, or who of them counts, have changed."""
        gang.roster.changes += 1
        if gang.phase is not Phase.QUARANTINED:
            self.changed(gang)

    # -- it has no plan ------------------------------------------------------------------------------------------

    def waits(self, gang: Gang, now: float) -> None:
        """It holds nothing: for room, or for its members to exist."""
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
        """It waits for room, and was turned away; or for gang places of its namespace."""
        since = self.unasked.pop(gang.key, now)
        if self.quota.sets_aside(gang):
            # For room it waits from when it may have some.
            gang.wait.since = None
            self.leave(gang)
            return
        if gang.wait.since is None:
            gang.wait.since = since
        self.queue.enter(gang)

    def leave(self, gang: Gang) -> None:
        """It is not in the queue, and no room is saved for it."""
        if self.queue.saved.gang is gang:
            self.queue.saved.give_back()
        self.queue.leave(gang)

    def heed_quota(self) -> None:
        """Whoever waits for gang places of its namespace, or for room, waits for what it lacks now."""
        for gang in self.quota.take_news(self._table.by_key.get, self._turn):
            if gang.holds_a_plan:
                self.quota.leave(gang)
                if gang.wait.rejected:
                    self.surplus.planned_anew(gang)
                    self.surplus.has(gang)
            else:
                self.stirred[gang.key] = None

    def _turn(self, gang: Gang) -> Turn:
        """That of one that is in no queue, where the policies have it now."""
        self.queue.order.place(gang)
        return gang.turn

    # -- it has one, or is no more -------------------------------------------------------------------------------

    def has_a_plan(self, gang: Gang) -> None:
        """It waits no more, and has passed those before it that do."""
        gang.wait.since, gang.wait.bypasses = None, 0
        gang.wait.told_of.clear()
        self.surplus.planned_anew(gang)
        self.ended(gang)
        self.queue.passed_by(gang)

    def ended(self, gang: Gang) -> None:
        """It does not wait."""
        self.unasked.pop(gang.key, None)
        self.quota.aside.pop(gang.key, None)
        self.queue.leave(gang)

    def forget(self, gang: Gang) -> None:
        """It is no more."""
        self.ended(gang)
        self.quota.leave(gang)
        self.preempting.ended(gang)
        self.stirred.pop(gang.key, None)

    # -- those that kube-scheduler does not ask about ------------------------------------------------------------

    def next_unasked(self) -> tuple[GangKey, float] | None:
        """The one that has not been asked about for longest, and when patience with that ends."""
        for key, since in self.unasked.items():
            return key, since + self._patience.seconds
        return None

    def enter_unasked(self, key: GangKey, now: float) -> None:
        """It waits for room as if it had been turned away; but where nobody is kept waiting."""
        if self._brake.observes(key.namespace):
            del self.unasked[key]
        else:
            self.enter(self._table.by_key[key], now)
            self.stirred[key] = None

    def preferred_to(self, gang: Gang) -> list[Gang]:
        """Those of them that the policies have before this one. Of others it is as good as any that kube-scheduler asks
        about this one first."""
        # Where nothing was ever ordered there is no need to ask about everybody.
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
        others = [self._table.by_key[key] for key in self.unasked if not self._brake.observes(key.namespace)]
        return [o for o in others if o.terms.claims >= gang.terms.claims and o.wait.order < gang.wait.order]

    def violations(self) -> Iterator[Violation]:
        """A gang whose quorum exists and that has no plan is never lost sight of."""
        yield from self.queue.violations()
        yield from self._staying.violations()
        for gang in self._table.by_key.values():
            watched = (
                self._brake.observes(gang.key.namespace)
                or self._is_watched(gang)
                or gang.key in self.unasked
                or gang.key in self.stirred
            )
            waits = gang.phase in (Phase.GATHERING, Phase.WAITING) and gang.needed and not gang.missing
            if waits and not watched:
                yield Violation("gang_not_watched", f"{gang.key} waits, and nothing will try it again")
