"""Gangs that wait: when each is tried again, for whom room is saved, for whom others have to leave.

Knows which gangs have no plan, in which order they have their turn (`turns`), and who was turned away; it plans through
the function that it is given. Must not know members' coming and going, nor the barrier: see `gangs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from extender.core.audit import Violation
from extender.core.cluster import Pod
from extender.core.gang import (
    NO_ROOM,
    EvictFor,
    Gang,
    GangEffect,
    GangTurnedAway,
    RoomSaved,
    TurnLost,
    WakePod,
)
from extender.core.gang_phases import Phase
from extender.core.ledger import Ledger
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.places import Places
from extender.core.preemption import Unit, unit_of
from extender.core.savings import Thrift
from extender.core.staying import Staying
from extender.core.turns import Patience, Turns

PREEMPTS_EVERY = 10.0
"""For how many seconds a gang for which others were evicted, or for which that would not help, does not try again."""

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
    ) -> None:
        self.turns = Turns(ledger, places, patience, giving_way, staying=staying, thrift=thrift)
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
        self._surplus: dict[GangKey, None] = {}
        """Gangs that hold a plan, and of which members beyond it were turned away."""

    # -- who waits -----------------------------------------------------------------------------------------------

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
        self.ended(gang)
        self.turns.passed_by(gang)

    def has_surplus(self, gang: Gang) -> None:
        """It holds a plan, and members beyond it were turned away."""
        self._surplus[gang.key] = None

    def ended(self, gang: Gang) -> None:
        """It does not wait."""
        self._unasked.pop(gang.key, None)
        self.turns.leave(gang)

    # -- what has changed ----------------------------------------------------------------------------------------

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """Every gang that waits and now fits is planned, in turn, and its members are woken; so are those of the
        surplus. What the others leave is saved for the gang whose turn it is."""
        stirred, self.stirred = self.stirred, {}
        for key in stirred:
            self.handled = key
            if (gang := self._gangs.get(key)) is not None:
                self._line_up(gang, now)
        for gang in self.turns.candidates(gains, stirred):
            self.handled = gang.key
            is_saved_for = gang is self.turns.saver
            news = None if gang.key in stirred else gains
            if (not is_saved_for or self.turns.may_fit(gang, news)) and self._plan(gang, None, list(gains), now):
                # Whoever has no slot of its own may find room beside the quorum.
                for uid in list(gang.rejected):
                    self.wake(gang, uid)
                continue
            if is_saved_for:
                self.turns.save(gains, now)
            if gang.key in stirred and (member := next((pod for pod in gang.unplaced() if pod.at_our_gate), None)):
                # kube-scheduler does not ask about it, and says nothing of it either.
                self._effects.append(GangTurnedAway(gang.key, member, NO_ROOM, gang.shortfall))
        self._heed_surplus(gains, stirred)

    def look_again(self) -> None:
        """Everybody is to be settled, as if something about each had changed."""
        self.stirred |= dict.fromkeys([*self.turns.waiting(), *self._surplus])

    def _line_up(self, gang: Gang, now: float) -> None:
        """It waits for room, or it does not, after something about it has changed."""
        if (gang.rejected or gang in self.turns) and not gang.holds_a_plan and not gang.missing:
            self.enter(gang, now)
            return
        if gang.rejected and gang.holds_a_plan:
            self._surplus[gang.key] = None
        if gang is self.turns.saver:
            self._places.release(gang)
        self.turns.leave(gang)

    def _heed_surplus(self, gains: Collection[NodeName], stirred: Collection[GangKey]) -> None:
        room: dict[int, bool] = {}

        def may_fit(pod: Pod) -> bool:
            known = id(pod.requests)
            if known not in room:
                room[known] = any(self._ledger.short(node, pod.requests) is None for node in gains)
            return room[known]

        for key in list(self._surplus):
            self.handled = key
            gang = self._gangs.get(key)
            if gang is None or not gang.rejected or not gang.holds_a_plan:
                del self._surplus[key]
                continue
            for uid in [uid for uid in gang.rejected if key in stirred or may_fit(gang.members[uid])]:
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
        for gang in self._gangs.values():
            watched = gang in self.turns or gang.key in self._unasked or gang.key in self.stirred
            waits = gang.phase in (Phase.GATHERING, Phase.WAITING) and gang.needed and not gang.missing
            if waits and not watched:
                yield Violation("gang_not_watched", f"{gang.key} waits, and nothing will try it again")

    # -- turns ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_turn` has something to do, in seconds since the epoch."""
        unasked = next(iter(self._unasked.values()), None)
        known = (self.turns.next_deadline(), None if unasked is None else unasked + self.turns.patience.seconds)
        return min((when for when in known if when is not None), default=None)

    def heed_turn(self, now: float) -> bool:
        """Room is saved for the gang whose turn has come. Whether anything is to be settled for that."""
        self._line_up_unasked(now)
        self.handled = None if (first := self.turns.first()) is None else first.key
        gang = self.turns.heed(now)
        for each in self.turns.lost:
            self._effects.append(TurnLost(each.key, each.saves_after - now, tuple(each.unplaced())))
        self.turns.lost.clear()
        if gang is not None:
            self._effects.append(RoomSaved(gang.key, gang.needed, tuple(gang.unplaced())))
            self.stirred[gang.key] = None
        return bool(self.stirred)

    def _line_up_unasked(self, now: float) -> None:
        while self._unasked:
            key, since = next(iter(self._unasked.items()))
            if now < since + self.turns.patience.seconds:
                return
            self.handled = key
            self.enter(self._gangs[key], now)
            self.stirred[key] = None

    def preempt(self, pods: Mapping[PodUid, Pod], now: float) -> bool:
        """Room is made for the gang that is first in turn, if pods of lower priority hold it. `pods`: all that are not
        finished. Whether anything is to be settled for that."""
        gang = self.turns.first()
        self.handled = None if gang is None else gang.key
        if gang is None or now < gang.preempts_after or not gang.preempts or not self.turns.may_save_all(gang):
            return False
        gang.preempts_after = now + PREEMPTS_EVERY
        units, going = self._units_below(gang.priority, pods)
        if not units:
            return False
        choice = self._places.victims_for(gang, units, going, self.turns.usable_by(gang))
        if choice is None:
            return False
        self.turns.save_at(gang, choice.nodes, now)
        if choice.victims:
            self._effects.append(EvictFor(gang.key, tuple(gang.unplaced()), choice.victims))
        return True

    def _units_below(self, priority: int, pods: Mapping[PodUid, Pod]) -> tuple[list[Unit], list[Pod]]:
        """Who could be evicted, and who is about to go anyway."""
        bound = {uid: pod for uid, pod in pods.items() if pod.node is not None}
        going = [pod for pod in bound.values() if pod.deleting]
        units: list[Unit] = []
        for gang in self._gangs.values():
            members = [bound.pop(uid) for uid in gang.members if uid in bound]
            staying = [pod for pod in members if not pod.deleting]
            if staying and gang.phase is not Phase.BINDING and (unit := unit_of(staying)).priority < priority:
                units.append(unit)
        units += [unit_of([pod]) for pod in bound.values() if not pod.deleting and pod.priority < priority]
        return units, going
