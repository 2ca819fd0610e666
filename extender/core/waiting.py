"""Gangs that wait: when each is tried again, for whom room is saved, for whom others have to leave.

Knows which gangs have no plan, in which order they have their turn (`turns`), and who was turned away; it plans through
the function that it is given. Must not know members' coming and going, nor the barrier: see `gangs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from extender.core.audit import Violation
from extender.core.brake import Act, Brake, Withheld
from extender.core.cluster import Pod
from extender.core.gang import NO_ROOM, Gang, GangEffect, GangTurnedAway, RoomSaved, Turn, TurnLost, WakePod
from extender.core.gang_phases import Phase
from extender.core.ledger import Ledger
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.places import Places
from extender.core.preempting import Preempting
from extender.core.savings import Thrift
from extender.core.staying import Staying
from extender.core.surplus import Surplus
from extender.core.turns import Patience, Turns

Plan = Callable[[Gang, Pod | None, Sequence[NodeName], float], bool]
"""Reserves the gang's quorum, its first member on one of the nodes; whether that was possible."""


class Waiting:
    """`gangs` is the table of all gangs, and `effects` takes what should be done: both are of `gangs.Gangs`.

    `giving_way`: who gives its plan up for a gang of that priority.
    """

    def __init__(
        self,
        ledger: Ledger,
        places: Places,
        patience: Patience,
        gangs: Mapping[GangKey, Gang],
        effects: list[GangEffect],
        plan: Plan,
        giving_way: Callable[[int], Sequence[Gang]],
        staying: Staying,
        thrift: Thrift,
        brake: Brake,
    ) -> None:
        self.turns = Turns(ledger, places, patience, giving_way, brake, staying, thrift=thrift)
        self._staying = staying
        self._brake = brake
        self.preempting = Preempting(ledger, places, gangs, effects, brake)
        self.stirred: dict[GangKey, None] = {}
        """Gangs that wait and of which something has changed: to be settled, though no node has gained room."""
        self._ledger = ledger
        self._places = places
        self._gangs = gangs
        self._effects = effects
        self._plan = plan
        self._unasked: dict[GangKey, float] = {}
        """Gangs whose members all exist, and that kube-scheduler has not asked about since then, oldest first: it finds
        no node for any of them, for others take each one that comes free."""
        self.handled: GangKey | None = None
        """The gang that is being looked at: where that fails, it is its defect."""
        self.surplus = Surplus(ledger, gangs, self.turns.copies, places.would_have, self._handle)
        self._news_for_surplus: dict[NodeName, None] = {}
        """Nodes that gained room, and may lose it again to those who are before the surplus in turn."""
        self._left: dict[NodeName, None] = {}
        """Nodes that gained room, and were not tried for all who wait when the slice of work was over."""
        self._next_turn: Turn | None = None
        """Of the first who was not tried then."""

    # -- who waits -----------------------------------------------------------------------------------------------

    def _handle(self, key: GangKey) -> None:
        self.handled = key

    def changed(self, gang: Gang) -> None:
        """Something about it has changed: if it waits, it is to be settled."""
        if gang.rejected or gang in self.turns:
            self.stirred[gang.key] = None

    def has_no_plan(self, gang: Gang, now: float) -> None:
        """It gathers or waits, and kube-scheduler may never ask about it."""
        if gang.missing or gang.rejected or gang in self.turns:
            self._unasked.pop(gang.key, None)
        else:
            self._unasked.setdefault(gang.key, now)

    def enter(self, gang: Gang, now: float) -> None:
        """It waits for room, and was turned away."""
        if gang.waits_since is None:
            gang.waits_since = self._unasked.get(gang.key, now)
        self._unasked.pop(gang.key, None)
        self.turns.enter(gang)

    def has_a_plan(self, gang: Gang) -> None:
        """It waits no more, and has passed those before it that do."""
        gang.waits_since, gang.passes = None, 0
        self.surplus.planned_anew(gang)
        self.ended(gang)
        self.turns.passed_by(gang)

    def has_surplus(self, gang: Gang, member: Pod | None = None, sent: Sequence[NodeName] = ()) -> None:
        """It holds a plan, and members beyond it were turned away: this one just now, on the nodes sent."""
        self.surplus.has(gang)
        if member is not None and not self._places.is_sample(sent):
            self.surplus.found_no_place(gang, member)

    def ended(self, gang: Gang) -> None:
        """It does not wait."""
        self._unasked.pop(gang.key, None)
        self.turns.leave(gang)

    # -- what has changed ----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there is something to settle, though no node may have gained room."""
        return bool(self.stirred or self._left or self._news_for_surplus) or self.surplus.has_news

    def begin_slice(self) -> None:
        """As much work as one slice holds may be done from now on."""
        self.turns.resume()

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """Every gang that waits and now fits is planned, in turn, and its members are woken; so are those of the
        surplus. What the others leave is saved for the gang whose turn it is.

        Where the slice of work is over before all are tried, the rest is left for the next call: the first in turn is
        tried first then, if something has changed for it, and nobody is planned out of turn meanwhile (`postpone`).
        """
        news, gains = gains, {**self._left, **dict.fromkeys(gains)}
        self._left, self._next_turn = {}, None
        stirred, self.stirred = self.stirred, {}
        for key in stirred:
            self.handled = key
            if (gang := self._gangs.get(key)) is not None:
                self._line_up(gang, now)
        for key in stirred:
            self.handled = key
            if (gang := self._gangs.get(key)) is not None and gang.holds_a_plan:
                for uid in self.surplus.with_own_place(gang):
                    self.wake(gang, uid)
        for gang in self.turns.candidates(gains, stirred):
            if self.turns.work.is_over:
                self._leave_rest(gang, gains, stirred)
                break
            self.handled = gang.key
            self._try(gang, gains, stirred, now)
        self._news_for_surplus |= dict.fromkeys(news)
        if not (self._left or self._ledger.has_gains):
            # What was given up on the way is saved again by now.
            news, self._news_for_surplus = self._news_for_surplus, {}
            self._heed_surplus(news, now)

    def _try(self, gang: Gang, gains: Collection[NodeName], stirred: Collection[GangKey], now: float) -> None:
        is_saved_for = gang is self.turns.saver
        news = None if gang.key in stirred else gains
        if not is_saved_for or self.turns.may_fit(gang, news):
            if gang.tried_at != (self._ledger.gain_count, gang.changes):
                self.turns.take_work(gang)
            if self._plan(gang, None, list(gains), now):
                # Whoever has no slot of its own may find room beside the quorum.
                if gang.rejected:
                    self.surplus.has(gang)
                return
        if is_saved_for:
            self.turns.save(gains, now)
        if gang.key in stirred and (member := next((pod for pod in gang.unplaced() if pod.at_our_gate), None)):
            # kube-scheduler does not ask about it, and says nothing of it either.
            self._effects.append(GangTurnedAway(gang.key, member, NO_ROOM, gang.shortfall))

    def _leave_rest(self, first: Gang, gains: Mapping[NodeName, None], stirred: Mapping[GangKey, None]) -> None:
        self._left = dict(gains)
        self._next_turn = first.turn
        for key in stirred:
            gang = self._gangs.get(key)
            if gang is not None and gang in self.turns and gang.turn >= first.turn:
                self.stirred.setdefault(key)

    def postpone(self, gang: Gang) -> bool:
        """Whether somebody before it in turn is still to be tried; it is then tried itself when its turn has come."""
        if self._next_turn is None or gang.turn <= self._next_turn or gang.missing:
            return False
        self.stirred[gang.key] = None
        return True

    def look_again(self) -> None:
        """Everybody is to be settled, as if something about each had changed."""
        self.stirred |= dict.fromkeys(self.turns.waiting())
        self.surplus.look_again()

    def _line_up(self, gang: Gang, now: float) -> None:
        """It waits for room, or it does not, after something about it has changed."""
        observed = self._brake.observes(gang.key.namespace)
        if (gang.rejected or gang in self.turns) and not (gang.holds_a_plan or gang.missing or observed):
            self.enter(gang, now)
            return
        for uid in list(gang.rejected) if observed else ():
            # Nobody is kept waiting there, and nobody else would wake it, or open our gate.
            self.wake(gang, uid)
        if gang.rejected and gang.holds_a_plan:
            self.surplus.has(gang)
        if gang is self.turns.saver:
            self._places.release(gang)
        self.turns.leave(gang)

    def _heed_surplus(self, gains: Collection[NodeName], now: float) -> None:
        self.turns.refresh()
        for gang, uid in self.surplus.to_wake(gains, now):
            self.wake(gang, uid)

    def wake(self, gang: Gang, uid: PodUid) -> None:
        """The member was turned away, or waits at our gate, and is to be tried now."""
        gang.rejected.discard(uid)
        if uid in gang.members:
            self._effects.append(WakePod(gang.members[uid]))

    # -- audit ---------------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[Violation]:
        """A gang whose quorum exists and that has no plan is never lost sight of."""
        yield from self.turns.violations()
        yield from self._staying.violations()
        for gang in self._gangs.values():
            watched = (
                self._brake.observes(gang.key.namespace)
                or gang in self.turns
                or gang.key in self._unasked
                or gang.key in self.stirred
            )
            waits = gang.phase in (Phase.GATHERING, Phase.WAITING) and gang.needed and not gang.missing
            if waits and not watched:
                yield Violation("gang_not_watched", f"{gang.key} waits, and nothing will try it again")

    # -- turns ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_turn` has something to do, in seconds that only pass."""
        unasked = next(iter(self._unasked.values()), None)
        known = (
            self.turns.next_deadline(),
            self.surplus.next_deadline(),
            self.preempting.next_deadline(),
            None if unasked is None else unasked + self.turns.patience.seconds,
        )
        return min((when for when in known if when is not None), default=None)

    def heed_turn(self, now: float) -> bool:
        """Room is saved for the gang whose turn has come. Whether anything is to be settled for that."""
        self._line_up_unasked(now)
        for held_back in self.turns.held_back(now):
            self._effects.append(Withheld(Act.SAVE_ROOM, held_back.key.namespace, held_back.key))
        self.handled = None if (first := self.turns.first()) is None else first.key
        gang = self.turns.heed(now)
        for each in self.turns.lost:
            self._effects.append(TurnLost(each.key, each.saves_after - now, tuple(each.unplaced())))
        self.turns.lost.clear()
        if gang is not None:
            self._effects.append(RoomSaved(gang.key, gang.needed, tuple(gang.unplaced())))
            self.stirred[gang.key] = None
        return bool(self.stirred) or self.surplus.overdue(now)

    def _line_up_unasked(self, now: float) -> None:
        while self._unasked:
            key, since = next(iter(self._unasked.items()))
            if now < since + self.turns.patience.seconds:
                return
            self.handled = key
            if self._brake.observes(key.namespace):
                self._unasked.pop(key, None)
                continue
            self.enter(self._gangs[key], now)
            self.stirred[key] = None

    def preempt(self, now: float) -> bool:
        """Room is made for the gang that is first in turn, if pods of lower priority hold it. Whether anything is to be
        settled for that."""
        gang = self.turns.first()
        self.handled = None if gang is None else gang.key
        if gang is not None and not self.turns.may_save_all(gang):
            return False
        choice = self.preempting.search(gang, () if gang is None else self.turns.usable_by(gang), now)
        if choice is None or gang is None:
            return False
        if not self._brake.allows(Act.PREEMPT, gang.key.namespace):
            victims = tuple(map(str, choice.victims))
            self._effects.append(Withheld(Act.PREEMPT, gang.key.namespace, gang.key, victims))
            return False
        self.turns.save_at(gang, choice.nodes, now)
        if choice.units:
            self._effects.append(self.preempting.order(gang, choice, now))
        return True
