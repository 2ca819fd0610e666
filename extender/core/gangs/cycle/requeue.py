"""Requeue: after a state change, plans waiting gangs that fit now, and wakes their members.

Every gang that fits is planned before kube-scheduler asks about its members. For the gang whose turn it is, room that
is left is reserved and victims are evicted. The work is done in slices, so that other tasks can use the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from extender.core.common.timers import earliest
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.fit_index import shape_of
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import NO_ROOM, Gang, GangTurnedAway, RoomSaved, Turn, TurnLost
from extender.core.gangs.state.gang_store import GangStore
from extender.core.ledger.ledger import Ledger
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches, Withheld
from extender.kube.names import NodeName


@dataclass(eq=False)
class Requeue:
    _ledger: Ledger
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _quarantine: Quarantine
    _switches: SafetySwitches
    _news_for_surplus: dict[NodeName, None] = field(default_factory=dict, init=False)
    """Nodes that gained room, which gangs before the elastic members in turn may take first."""
    _left: dict[NodeName, None] = field(default_factory=dict, init=False)
    """Nodes that gained room, and were not tried for all waiting gangs before the slice ended."""
    _next_turn: Turn | None = field(default=None, init=False)
    """The turn of the first gang that was not tried then."""
    _changed: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Waiting gangs that have changed: they are lined up and are to be tried."""
    _in_turn: list[Turn] = field(default_factory=list, init=False)
    """The turns of these gangs in queue order, valid for the queue version `_in_turn_at`."""
    _in_turn_at: int = field(default=-1, init=False)
    _tried: set[GangKey] = field(default_factory=set, init=False)
    """Gangs tried in this pass. One that changes meanwhile is tried in the next pass.

    Otherwise a namespace that changes its gangs without end would use up every slice."""

    def __post_init__(self) -> None:
        self._queue, self._surplus = self._waiting.queue, self._waiting.surplus

    # -- what has changed ----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there is work although no node may have gained room."""
        news = self._surplus.has_news or self._waiting.quota.has_news
        return news or bool(self._waiting.to_requeue or self._changed or self._left or self._news_for_surplus)

    def begin_slice(self) -> None:
        """Starts a slice: its whole budget of work is available again."""
        self._queue.reorder()
        self._queue.fits.resume()

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """Plans every waiting gang that fits, in turn, and wakes its members and elastic members.

        What the others leave is reserved for the gang whose turn it is. If the slice ends before all are tried, the
        next call continues, with the first in turn if something changed for it. Meanwhile no gang is planned out of
        turn (`postpone`).
        """
        try:
            self._settle(gains, now)
        except Exception as defect:
            self._quarantine.contain(self._table.handled, defect)
            # The gangs after the failed one have not been looked at.
            self.look_again()

    def _settle(self, gains: Collection[NodeName], now: float) -> None:
        news, gains = gains, {**self._left, **dict.fromkeys(gains)}
        if self._next_turn is None:
            self._tried.clear()
        self._left, self._next_turn = {}, None
        self._waiting.on_quota()
        later = self._line_up_requeued(now)
        for gang in self._queue.candidates(gains, self._in_turn):
            if gang.key in later:
                self._queue.left_alone = gang.key
                continue
            if self._queue.fits.work.is_over or self._overtakes(gang, now):
                self._leave_rest(gang, gains)
                break
            self._table.handled = gang.key
            is_tried = gang.key in self._tried
            self._tried.add(gang.key)
            self._queue.left_alone = gang.key if self._planning.plans.why_none(gang, now) else None
            work = self._places.work
            self._try(gang, gains, self._changed, now)
            if not is_tried:
                # The gang with the reservation is tried in each slice: those behind it would never be.
                self._queue.fits.work.take(self._places.work - work)
        else:
            self._changed, self._in_turn = {}, []
        self._news_for_surplus |= dict.fromkeys(news)
        if not (self._left or self._ledger.changes.has_gains):
            # By now, everything given up on the way has been reserved again.
            news, self._news_for_surplus = self._news_for_surplus, {}
            self._queue.fits.refresh()
            for gang, uid in self._surplus.to_wake(news, now):
                self._table.wake(gang, uid)

    def _line_up_requeued(self, now: float) -> Collection[GangKey]:
        """Lines up the changed gangs, except those tried already in this pass, which it returns."""
        requeued, self._waiting.to_requeue = self._waiting.to_requeue, {}
        if self._in_turn_at != self._queue.version:
            gone = [
                key for key in self._changed if (gang := self._table.by_key.get(key)) is None or gang not in self._queue
            ]
            requeued = {**dict.fromkeys(gone), **requeued}
            for key in gone:
                del self._changed[key]
        calm: dict[str, bool] = {}
        anew = []
        for gang in self._handled(requeued):
            namespace = gang.key.namespace
            if namespace not in calm:
                calm[namespace] = not (self._switches.observes(namespace) or self._waiting.quota.concerns(namespace))
            # All gangs of a namespace are requeued at once when its policies change.
            if not (calm[namespace] and self._queue.is_as_it_was(gang) and not gang.holds_a_plan):
                self._line_up(gang, now)
                anew.append(gang)
        for gang in anew:
            self._table.handled = gang.key
            for uid in self._surplus.with_own_place(gang) if gang.holds_a_plan else ():
                self._table.wake(gang, uid)
        later = self._tried & requeued.keys()
        self._waiting.to_requeue |= dict.fromkeys(sorted(later))
        self._changed |= requeued
        for key in later:
            del self._changed[key]
        if requeued:
            self._in_turn_at = -1
        self._stand_in_turn()
        return later

    def _stand_in_turn(self) -> None:
        if self._in_turn_at != self._queue.version:
            self._in_turn_at, self._in_turn = self._queue.version, self._queue.in_turn(self._changed)
            self._changed = {turn[-1]: None for turn in self._in_turn}

    def _handled(self, keys: Iterable[GangKey]) -> Iterator[Gang]:
        """The gangs that still exist.

        An exception while the caller looks at one is a defect of that gang."""
        for key in keys:
            self._table.handled = key
            if (gang := self._table.by_key.get(key)) is not None:
                yield gang

    def _line_up(self, gang: Gang, now: float) -> None:
        """Puts the changed gang in the queue if it waits for room, else removes it."""
        observed = self._switches.observes(gang.key.namespace)
        waits = gang.wait.rejected or gang in self._queue or gang.key in self._waiting.quota.aside
        if waits and not (gang.holds_a_plan or gang.missing or observed):
            self._waiting.enter(gang, now)
            return
        for uid in list(gang.wait.rejected) if observed else ():
            # In an observed namespace no pod waits, and no other component would wake the member or open Escher's gate.
            self._table.wake(gang, uid)
        if gang.wait.rejected and gang.holds_a_plan:
            self._surplus.has(gang)
        if gang is self._queue.saved.gang:
            self._places.release(gang)
        self._queue.leave(gang)
        if not gang.holds_a_plan:
            self._waiting.quota.leave(gang)

    def _try(self, gang: Gang, gains: Collection[NodeName], requeued: Collection[GangKey], now: float) -> None:
        is_saved_for = gang is self._queue.saved.gang
        news = None if gang.key in requeued else gains
        if not is_saved_for or self._queue.may_fit(gang, news):
            self._take_work(gang)
            if self._planning.plan(gang, None, list(gains), now):
                # A member without a slot of its own may find room beside the quorum.
                if gang.wait.rejected:
                    self._surplus.has(gang)
                return
        if is_saved_for:
            self._queue.saved.save(gains, now)
        if gang.key in requeued and (member := next((pod for pod in gang.roster.unplaced() if pod.at_our_gate), None)):
            # kube-scheduler neither asks about a gated pod nor reports it.
            gang.waits_anew_for(NO_ROOM)
            self._table.effects.append(GangTurnedAway(gang.key, member, NO_ROOM, gang.wait.shortfall))
        elif gang.wait.rejected and gang.waits_anew_for(reason := self._planning.why_not(gang, now)):
            # kube-scheduler asks again only when the member fits, but the reason why the gang waits has changed.
            member = next((pod for pod in gang.roster.unplaced() if pod.uid in gang.wait.rejected), None)
            if member is not None:
                gang.wait.turned_away_in = gang.phase
                self._table.effects.append(GangTurnedAway(gang.key, member, reason, gang.wait.shortfall))

    def _take_work(self, gang: Gang) -> None:
        """Charges the try, but not again without a change: else gangs behind would never be tried."""
        state = self._planning.state_of(gang)
        if gang.key != self._queue.left_alone:
            if gang.wait.tried_at != state:
                self._queue.fits.take_work(shape_of(gang))
        elif gang.wait.passed_over_at != state:
            # No node is looked at for this gang.
            gang.wait.passed_over_at = state
            self._queue.fits.work.take(1)

    def _leave_rest(self, first: Gang, gains: Mapping[NodeName, None]) -> None:
        self._left = dict(gains)
        self._next_turn = first.turn
        self._stand_in_turn()
        at = bisect_left(self._in_turn, first.turn)
        for turn in self._in_turn[:at]:
            self._changed.pop(turn[-1], None)
        del self._in_turn[:at]

    def postpone(self, gang: Gang, now: float) -> bool:
        """Whether an untried gang precedes it in turn; if so, it is tried when its turn comes."""
        self._queue.order.place(gang)
        if gang.missing:
            return False
        overtakes = self._overtakes(gang, now)
        if not overtakes and (self._next_turn is None or gang.turn <= self._next_turn):
            return False
        self._waiting.to_requeue[gang.key] = None
        return True

    def _overtakes(self, gang: Gang, now: float) -> bool:
        """Whether gangs that kube-scheduler has not asked about precede it; these are then queued."""
        overtaken = self._waiting.preferred_to(gang)
        for other in overtaken:
            self._waiting.enter_unasked(other.key, now)
        return bool(overtaken)

    def look_again(self) -> None:
        """Requeues every gang as if it had changed."""
        self._waiting.to_requeue |= dict.fromkeys(self._queue)
        self._changed, self._in_turn = {}, []
        self._surplus.look_again()

    # -- turns ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_time` has work, in monotonic seconds."""
        unasked = self._waiting.next_unasked()
        return earliest(
            self._queue.next_deadline(),
            -inf if self._queue.fits.is_unsure else None,
            self._surplus.next_deadline(),
            self._waiting.preempting.next_deadline(),
            None if unasked is None else unasked[1],
        )

    def on_time(self, now: float) -> bool:
        """Makes or reserves room for the gang whose turn it is; returns whether to requeue."""
        self._table.handled = self._queue.asked_about = None
        try:
            return self._depends_on_time and (self._preempt(now) or self._on_turn(now))
        except Exception as defect:
            self._quarantine.contain(self._table.handled or self._queue.asked_about, defect)
        return True

    @property
    def _depends_on_time(self) -> bool:
        """Whether a gang waits, or a reservation, a preemption or a woken member has to be looked at."""
        queue, preempting = self._queue, self._waiting.preempting
        if self._waiting.unasked or preempting.orders or queue.after_others or next(iter(queue), None) is not None:
            return True
        times = (self._surplus.next_deadline(), preempting.next_deadline())
        return times != (None, None) or queue.saved.savings.depends_on_time

    def _on_turn(self, now: float) -> bool:
        while (unasked := self._waiting.next_unasked()) is not None and unasked[1] <= now:
            self._table.handled = unasked[0]
            self._waiting.enter_unasked(unasked[0], now)
        for held_back in self._queue.held_back(now):
            self._table.effects.append(Withheld(Act.SAVE_ROOM, held_back.key.namespace, held_back.key))
        self._table.handled = None if (first := self._queue.first()) is None else first.key
        rested = self._queue.saved.savings.resting
        gang = self._queue.on_time(now)
        for each in self._queue.lost:
            self._table.effects.append(TurnLost(each.key, each.wait.saves_after - now, tuple(each.roster.unplaced())))
        self._queue.lost.clear()
        if gang is not None:
            self._table.effects.append(RoomSaved(gang.key, gang.needed, tuple(gang.roster.unplaced())))
            self._waiting.to_requeue[gang.key] = None
        more_may_be_saved = rested and not self._queue.saved.savings.resting
        return more_may_be_saved or bool(self._waiting.to_requeue) or self._surplus.overdue(now)

    def _preempt(self, now: float) -> bool:
        """Evicts pods for the first gang in turn, if pods of lower priority hold its room."""
        gang = self._queue.first()
        self._table.handled = None if gang is None else gang.key
        if gang is None and self._queue.fits.is_unsure:
            # The gang that is found to be first keeps what it has.
            return False
        known_anew = self._planning.plans.known_anew
        if gang is not None and (gang.key.namespace in known_anew or not self._queue.saved.suffices(gang)):
            # `heed_time` is due when that ends. No search runs until then, not even one already begun for another gang.
            gang = None
        preempting = self._waiting.preempting
        choice = preempting.search(gang, () if gang is None else self._queue.saved.usable_by(gang), now)
        if choice is None or gang is None:
            return False
        if not self._switches.allows(Act.PREEMPT, gang.key.namespace):
            victims = tuple(map(str, choice.victims))
            self._table.effects.append(Withheld(Act.PREEMPT, gang.key.namespace, gang.key, victims))
            return False
        self._queue.saved.begin(gang, choice.nodes, now)
        if choice.units:
            self._table.effects.append(preempting.order(gang, choice, now))
        return True
