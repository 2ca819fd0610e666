"""Timeouts: what happens to gangs as time passes, and when safety switches have changed.

The time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.common.timers import earliest
from extender.core.gangs.cycle.permit_barrier import Barrier
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.cycle.quorum import Quorums
from extender.core.gangs.cycle.requeue import Requeue
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import TOO_LATE, Gang, GangTimedOut
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Ledger
from extender.core.names import GangKey
from extender.core.safety_switches import SafetySwitches


@dataclass(eq=False)
class Deadlines:
    _ledger: Ledger
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _requeue: Requeue
    _quorums: Quorums
    _barrier: Barrier
    _quarantine: Quarantine
    _switches: SafetySwitches

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_time` or `requeue` has work, in monotonic seconds."""
        return earliest(
            self._quorums.next_deadline(), self._planning.plans.next_deadline(), self._requeue.next_deadline()
        )

    def on_time(self, now: float) -> None:
        """Handles partial gangs, doubts and pauses that are due by now."""
        for key in self._quorums.not_completed(now):
            with self._quarantine.containing(key):
                self._quorums.give_up_part(key, now)
        self._quorums.report_doubts(now)
        self._planning.try_again(now)

    def expire(self, key: GangKey, now: float) -> None:
        """A holding of the gang passed its deadline. A plan not yet binding ends as a whole."""
        with self._quarantine.containing(key):
            gang = self._table.by_key.get(key)
            if gang is None or gang.phase is Phase.QUARANTINED:
                return
            if gang.phase is Phase.PLANNED:
                self._plan_ran_out(gang, now)
            else:
                self._expire_beside(gang, now)

    def _expire_beside(self, gang: Gang, now: float) -> None:
        self._waiting.changed(gang)
        late = [uid for uid in gang.barrier.arrived if self._ledger.holding(uid) is None]
        self._table.turn_back(gang, late, TOO_LATE)
        if gang.phase is Phase.IN_PART and len(self._places.unbound(gang)) < gang.needed:
            # Not all missing members have a place: they wait for room together, as others do, and hold none. Otherwise
            # each new one would hold room again, for ever.
            self._planning.give_up(gang, now, TOO_LATE)

    def _plan_ran_out(self, gang: Gang, now: float) -> None:
        gang.plan.gathered = True
        gang.plan.timed_out += 1
        waiting = tuple(gang.roster.members[uid] for uid in gang.barrier.arrived)
        if not (gang.plan.unheld and gang.missing):
            told = GangTimedOut(gang.key, len(waiting) + gang.roster.placed, gang.terms.quorum, waiting)
            self._table.effects.append(told)
        self._waiting.preempting.ran_out(gang, now)
        self._planning.plans.in_vain(gang, now)
        if not gang.missing:
            self._planning.plans.ran_out(gang, now)
        self._planning.give_up(gang, now, TOO_LATE)

    def on_safety_switches(self, now: float) -> None:
        """Safety switches changed: ends what they no longer allow, and looks at every gang again."""
        for gang in list(self._table.by_key.values()):
            with self._quarantine.containing(gang.key):
                if self._switches.observes(gang.key.namespace):
                    if gang.phase is Phase.PLANNED:
                        self._barrier.let_through(gang, now)
                elif gang.phase in (Phase.GATHERING, Phase.WAITING):
                    # While no pod waited in the namespace, the time without a filter call was not counted.
                    self._waiting.waits(gang, now)
            if gang.phase is not Phase.QUARANTINED:
                self._waiting.to_requeue[gang.key] = None
