"""Settling: whom of those that wait a change is for: they are planned and woken, in turn; what is left is saved.

Every gang that now fits is planned, before its members are asked about. Room is saved, and others are made to leave,
for the gang whose turn it is. Done in slices of work, so that others have their turn on the event loop. Must not know
members' coming and going, nor the barrier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.queue.fit_index import shape_of
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang import NO_ROOM, Gang, GangTurnedAway, RoomSaved, Turn, TurnLost
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.quarantine import Quarantine
from extender.core.ledger import Ledger
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches, Withheld
from extender.core.timers import earliest
from extender.kube.names import NodeName


@dataclass(eq=False)
class Settling:
    _ledger: Ledger
    _table: GangStore
    _places: Places
    _waiting: Waiting
    _planning: Planning
    _quarantine: Quarantine
    _brake: SafetySwitches
    _news_for_surplus: dict[NodeName, None] = field(default_factory=dict, init=False)
    """Nodes that gained room, and may lose it again to those who are before the surplus in turn."""
    _left: dict[NodeName, None] = field(default_factory=dict, init=False)
    """Nodes that gained room, and were not tried for all who wait when the slice of work was over."""
    _next_turn: Turn | None = field(default=None, init=False)
    """Of the first who was not tried then."""
    _changed: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs that wait and of which something has changed: they were lined up, and are to be tried."""
    _in_turn: list[Turn] = field(default_factory=list, init=False)
    """These, as they stand in the queue; and at which version of it."""
    _in_turn_at: int = field(default=-1, init=False)
    _tried: set[GangKey] = field(default_factory=set, init=False)
    """Gangs that were tried since all who wait were last through: one that changes meanwhile is tried in the next time
    through. Else a namespace that changes its gangs without end would use up every slice."""

    def __post_init__(self) -> None:
        self._queue, self._surplus = self._waiting.queue, self._waiting.surplus

    # -- what has changed ----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there is something to settle, though no node may have gained room."""
        news = self._surplus.has_news or self._waiting.quota.has_news
        return news or bool(self._waiting.stirred or self._changed or self._left or self._news_for_surplus)

    def begin_slice(self) -> None:
        """As much work as one slice holds may be done from now on."""
        self._queue.reorder()
        self._queue.fits.resume()

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """Every gang that waits and now fits is planned, in turn, and its members are woken; so are those of the
        surplus. What the others leave is saved for the gang whose turn it is.

        Where the slice of work is over before all are tried, the rest is left for the next call: the first in turn is
        tried first then, if something has changed for it, and nobody is planned out of turn meanwhile (`postpone`).
        """
        try:
            self._settle(gains, now)
        except Exception as defect:
            self._quarantine.contain(self._table.handled, defect)
            # Whoever was to be looked at after it has not been.
            self.look_again()

    def _settle(self, gains: Collection[NodeName], now: float) -> None:
        news, gains = gains, {**self._left, **dict.fromkeys(gains)}
        if self._next_turn is None:
            self._tried.clear()
        self._left, self._next_turn = {}, None
        self._waiting.heed_quota()
        later = self._line_up_stirred(now)
        for gang in self._queue.candidates(gains, self._in_turn):
            if gang.key in later:
                self._queue.left_alone = gang.key
                continue
            if self._queue.fits.work.is_over or self._overtakes(gang, now):
                self._leave_rest(gang, gains)
                break
            self._table.handled = gang.key
            self._tried.add(gang.key)
            self._queue.left_alone = gang.key if self._planning.plans.why_none(gang, now) else None
            work = self._places.work
            self._try(gang, gains, self._changed, now)
            self._queue.fits.work.take(self._places.work - work)
        else:
            self._changed, self._in_turn = {}, []
        self._news_for_surplus |= dict.fromkeys(news)
        if not (self._left or self._ledger.changes.has_gains):
            # What was given up on the way is saved again by now.
            news, self._news_for_surplus = self._news_for_surplus, {}
            self._queue.fits.refresh()
            for gang, uid in self._surplus.to_wake(news, now):
                self._table.wake(gang, uid)

    def _line_up_stirred(self, now: float) -> Collection[GangKey]:
        """Of whom something has changed is to be tried; but for these, who were, and are once all others were."""
        stirred, self._waiting.stirred = self._waiting.stirred, {}
        if self._in_turn_at != self._queue.version:
            gone = [
                key for key in self._changed if (gang := self._table.by_key.get(key)) is None or gang not in self._queue
            ]
            stirred = {**dict.fromkeys(gone), **stirred}
            for key in gone:
                del self._changed[key]
        calm: dict[str, bool] = {}
        anew = []
        for gang in self._handled(stirred):
            namespace = gang.key.namespace
            if namespace not in calm:
                calm[namespace] = not (self._brake.observes(namespace) or self._waiting.quota.concerns(namespace))
            # All gangs of a namespace are stirred at once where its policies change.
            if not (calm[namespace] and self._queue.is_as_it_was(gang) and not gang.holds_a_plan):
                self._line_up(gang, now)
                anew.append(gang)
        for gang in anew:
            self._table.handled = gang.key
            for uid in self._surplus.with_own_place(gang) if gang.holds_a_plan else ():
                self._table.wake(gang, uid)
        later = self._tried & stirred.keys()
        self._waiting.stirred |= dict.fromkeys(sorted(later))
        self._changed |= stirred
        for key in later:
            del self._changed[key]
        if stirred:
            self._in_turn_at = -1
        self._stand_in_turn()
        return later

    def _stand_in_turn(self) -> None:
        if self._in_turn_at != self._queue.version:
            self._in_turn_at, self._in_turn = self._queue.version, self._queue.in_turn(self._changed)
            self._changed = {turn[-1]: None for turn in self._in_turn}

    def _handled(self, keys: Iterable[GangKey]) -> Iterator[Gang]:
        """Those of the gangs that there are; where one of them fails while it is looked at, it is its defect."""
        for key in keys:
            self._table.handled = key
            if (gang := self._table.by_key.get(key)) is not None:
                yield gang

    def _line_up(self, gang: Gang, now: float) -> None:
        """It waits for room, or it does not, after something about it has changed."""
        observed = self._brake.observes(gang.key.namespace)
        waits = gang.wait.rejected or gang in self._queue or gang.key in self._waiting.quota.aside
        if waits and not (gang.holds_a_plan or gang.missing or observed):
            self._waiting.enter(gang, now)
            return
        for uid in list(gang.wait.rejected) if observed else ():
            # Nobody is kept waiting there, and nobody else would wake it, or open our gate.
            self._table.wake(gang, uid)
        if gang.wait.rejected and gang.holds_a_plan:
            self._surplus.has(gang)
        if gang is self._queue.saved.gang:
            self._places.release(gang)
        self._queue.leave(gang)
        if not gang.holds_a_plan:
            self._waiting.quota.leave(gang)

    def _try(self, gang: Gang, gains: Collection[NodeName], stirred: Collection[GangKey], now: float) -> None:
        is_saved_for = gang is self._queue.saved.gang
        news = None if gang.key in stirred else gains
        if not is_saved_for or self._queue.may_fit(gang, news):
            self._take_work(gang)
            if self._planning.plan(gang, None, list(gains), now):
                # Whoever has no slot of its own may find room beside the quorum.
                if gang.wait.rejected:
                    self._surplus.has(gang)
                return
        if is_saved_for:
            self._queue.saved.save(gains, now)
        if gang.key in stirred and (member := next((pod for pod in gang.roster.unplaced() if pod.at_our_gate), None)):
            # kube-scheduler does not ask about it, and says nothing of it either.
            gang.waits_anew_for(NO_ROOM)
            self._table.effects.append(GangTurnedAway(gang.key, member, NO_ROOM, gang.wait.shortfall))
        elif gang.wait.rejected and gang.waits_anew_for(reason := self._planning.why_not(gang, now)):
            # Nobody asks about it before it fits, though what it waits for is another thing now.
            member = next((pod for pod in gang.roster.unplaced() if pod.uid in gang.wait.rejected), None)
            if member is not None:
                gang.wait.turned_away_in = gang.phase
                self._table.effects.append(GangTurnedAway(gang.key, member, reason, gang.wait.shortfall))

    def _take_work(self, gang: Gang) -> None:
        """What the try costs counts, but once only while nothing has changed: else the same would use up every
        slice, and nobody behind them was ever tried."""
        state = self._planning.state_of(gang)
        if gang.key != self._queue.left_alone:
            if gang.wait.tried_at != state:
                self._queue.fits.take_work(shape_of(gang))
        elif gang.wait.passed_over_at != state:
            # No node is looked at for it.
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
        """Whether somebody before it in turn is still to be tried; it is then tried itself when its turn has come."""
        self._queue.order.place(gang)
        if gang.missing:
            return False
        overtakes = self._overtakes(gang, now)
        if not overtakes and (self._next_turn is None or gang.turn <= self._next_turn):
            return False
        self._waiting.stirred[gang.key] = None
        return True

    def _overtakes(self, gang: Gang, now: float) -> bool:
        """Whether others are before it that kube-scheduler has not asked about. They are to be tried with those that
        it has."""
        overtaken = self._waiting.preferred_to(gang)
        for other in overtaken:
            self._waiting.enter_unasked(other.key, now)
        return bool(overtaken)

    def look_again(self) -> None:
        """Everybody is to be settled, as if something about each had changed."""
        self._waiting.stirred |= dict.fromkeys(self._queue)
        self._changed, self._in_turn = {}, []
        self._surplus.look_again()

    # -- turns ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_time` has something to do, in seconds that only pass."""
        unasked = self._waiting.next_unasked()
        return earliest(
            self._queue.next_deadline(),
            self._surplus.next_deadline(),
            self._waiting.preempting.next_deadline(),
            None if unasked is None else unasked[1],
        )

    def heed_time(self, now: float) -> bool:
        """Room is made or saved for the gang whose turn has come. Whether anything is to be settled for that."""
        try:
            return self._preempt(now) or self._heed_turn(now)
        except Exception as defect:
            self._quarantine.contain(self._table.handled, defect)
        return True

    def _heed_turn(self, now: float) -> bool:
        while (unasked := self._waiting.next_unasked()) is not None and unasked[1] <= now:
            self._table.handled = unasked[0]
            self._waiting.enter_unasked(unasked[0], now)
        for held_back in self._queue.held_back(now):
            self._table.effects.append(Withheld(Act.SAVE_ROOM, held_back.key.namespace, held_back.key))
        self._table.handled = None if (first := self._queue.first()) is None else first.key
        rested = self._queue.saved.savings.resting
        gang = self._queue.heed(now)
        for each in self._queue.lost:
            self._table.effects.append(TurnLost(each.key, each.wait.saves_after - now, tuple(each.roster.unplaced())))
        self._queue.lost.clear()
        if gang is not None:
            self._table.effects.append(RoomSaved(gang.key, gang.needed, tuple(gang.roster.unplaced())))
            self._waiting.stirred[gang.key] = None
        more_may_be_saved = rested and not self._queue.saved.savings.resting
        return more_may_be_saved or bool(self._waiting.stirred) or self._surplus.overdue(now)

    def _preempt(self, now: float) -> bool:
        """Others leave for the gang that is first in turn, if pods of lower priority hold its room."""
        gang = self._queue.first()
        self._table.handled = None if gang is None else gang.key
        known_anew = self._planning.plans.known_anew
        if gang is not None and (gang.key.namespace in known_anew or not self._queue.saved.suffices(gang)):
            # `heed_time` is due when that ends; no search is until then, not even one that another was to have.
            gang = None
        preempting = self._waiting.preempting
        choice = preempting.search(gang, () if gang is None else self._queue.saved.usable_by(gang), now)
        if choice is None or gang is None:
            return False
        if not self._brake.allows(Act.PREEMPT, gang.key.namespace):
            victims = tuple(map(str, choice.victims))
            self._table.effects.append(Withheld(Act.PREEMPT, gang.key.namespace, gang.key, victims))
            return False
        self._queue.saved.begin(gang, choice.nodes, now)
        if choice.units:
            self._table.effects.append(preempting.order(gang, choice, now))
        return True
