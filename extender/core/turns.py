"""Turns: in which order waiting gangs are tried when room comes free, and room saved for the one whose turn it is.

A gang that does not fit is passed by others that do, for room should not stand idle. That has a bound, `Patience`:
among those that would fit into the cluster beside what stays there (`staying`), room is saved for the first in turn
(priority, then age) once it was passed so often, or has waited so long. What comes free on the nodes that it could be
on is reserved, place by place and part by part, until its whole quorum has room. Nobody takes that but gangs before it
in turn, and pods of a higher priority. Room is saved for one gang at a time, so that no two hold a part each.

That has a bound too, `savings`: where it leads to nothing, or keeps too much idle for too long, all is given back. The
gang has lost its turn: it goes behind all of its priority that wait now, and no room is saved for it for a time, twice
as long each time. It is tried as before whenever room comes free.

Knows who waits and what for; must not know phases, barriers, nor how a gang is planned: see `gangs`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from extender.core.audit import Violation
from extender.core.brake import Act, Brake
from extender.core.cluster import Pod
from extender.core.copies import Copies, Need, copies_beside, copies_in, need_of
from extender.core.could_fit import CouldFit, NothingStays, Rank, Shape, Stays
from extender.core.gang import Gang, Turn
from extender.core.kinds import PodKind, kind_of
from extender.core.ledger import Holder, Ledger
from extender.core.names import GangKey, NodeName
from extender.core.places import Places
from extender.core.savings import DEFAULT_THRIFT, Savings, Thrift
from extender.core.work import Work

SAVED_SECONDS = 60.0
"""After so long without news, where room is saved is looked for anew."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the gang that is first in turn may be passed, and how many seconds it waits, before room is saved."""

    passes: int = 8
    seconds: float = 60.0


DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class _Entry:
    gang: Gang
    shape: Shape
    turn: Turn
    rank: Rank
    changes: int


class Turns:
    """`giving_way`: gangs that give their plan up for one of that priority."""

    def __init__(
        self,
        ledger: Ledger,
        places: Places,
        patience: Patience,
        giving_way: Callable[[int], Sequence[Gang]] = lambda priority: (),
        brake: Brake | None = None,
        stays: Stays | None = None,
        work: Work | None = None,
        thrift: Thrift = DEFAULT_THRIFT,
    ) -> None:
        self._brake = brake or Brake()
        self.saver: Gang | None = None
        """The gang that room is saved for."""
        self.savings = Savings(ledger, thrift)
        self.lost: list[Gang] = []
        """Gangs that have lost their turn, and that nobody has been told of."""
        self._ledger = ledger
        self._places = places
        self.patience = patience
        self._giving_way = giving_way
        self.work = Work() if work is None else work
        self.copies: Copies[PodKind] = Copies(ledger.rows, self._count_free)
        """How often pods of a kind fit into what is free."""
        self._could_fit = CouldFit(
            ledger, places.could_ever_fit, places.would_have, NothingStays() if stays is None else stays, self.work
        )
        self._entries: dict[GangKey, _Entry] = {}
        self._queues: dict[Shape, list[Turn]] = {}
        """Those who wait, by shape, each in turn."""
        self._alone = 0
        """How many of them have a shape of their own."""
        self._paused: dict[GangKey, float] = {}
        """Gangs that wait and that no room is saved for, until then at least."""
        self._version = 0
        self._first: tuple[tuple[int, int, int, int], Gang | None] = ((-1, -1, -1, -1), None)
        self._held_back: dict[GangKey, None] = {}
        """Gangs of which it was told that the brake keeps room from being saved for them."""
        self._gave_way: tuple[GangKey, int] | None = None

    # -- who waits -----------------------------------------------------------------------------------------------

    def enter(self, gang: Gang) -> None:
        """The gang waits for room, with members as they are now."""
        known = self._entries.get(gang.key)
        if known is not None and known.changes == gang.changes:
            return
        self._take_out(gang.key)
        rank = gang.claims if gang.preempts else None
        entry = self._entries[gang.key] = _Entry(gang, _shape_of(gang), gang.turn, rank, gang.changes)
        if entry.shape not in self._queues:
            self._queues[entry.shape] = []
            self._alone += entry.shape[2] is not None
            self.refresh()
            for kind, _ in entry.shape[1]:
                self.copies.follow(kind)
        insort(self._queues[entry.shape], entry.turn)
        if gang.saves_after:
            self._paused[gang.key] = gang.saves_after
        self._version += 1

    def leave(self, gang: Gang) -> None:
        """It does not wait for room, or not now. What was saved for it is its plan's, or is released by the caller."""
        self._take_out(gang.key)
        if self.saver is gang:
            self.saver = None

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._entries

    def waiting(self) -> Collection[GangKey]:
        """All that wait."""
        return self._entries.keys()

    def _take_out(self, key: GangKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._held_back.pop(key, None)
        self._version += 1
        self._paused.pop(key, None)
        queue = self._queues[entry.shape]
        del queue[bisect_left(queue, entry.turn)]
        if not queue:
            del self._queues[entry.shape]
            self._alone -= entry.shape[2] is not None
            self._could_fit.forget(entry.shape)
            for kind, _ in entry.shape[1]:
                self.copies.leave(kind)

    def _count_free(self, node: NodeName, kind: PodKind) -> int:
        row = self._ledger.rows.get(node)
        if row is None or not row.present:
            return 0
        count = copies_beside(row.capacity, row.held, kind.need)
        return count if count and self._places.would_have(node, kind) else 0

    def refresh(self) -> None:
        """What is answered from now on is of this moment. O(nodes that have changed x kinds of pods that wait)."""
        if changes := self._ledger.drain_changes():
            self.work.take(self.copies.refresh(changes))
        self._could_fit.refresh()

    # -- whom to try ---------------------------------------------------------------------------------------------

    def candidates(self, gains: Collection[NodeName], stirred: Collection[GangKey]) -> Iterator[Gang]:
        """Gangs that may fit now, in turn, given nodes that gained room and gangs whose members changed.

        One of each shape at a time: only if it was placed (it has left by the next step) the next of its shape comes.
        O(shapes), and not O(gangs), where nothing fits.
        """
        self.refresh()
        heap = [self._queues[shape][0] for shape in self._queues if self._may_gain(shape, gains)]
        single = {turn for key in stirred if (entry := self._entries.get(key)) and (turn := entry.turn) not in heap}
        if self.saver is not None and gains and self.saver.turn not in heap:
            single.add(self.saver.turn)
        heap += single
        heapify(heap)
        while heap:
            turn = heappop(heap)
            key = turn[-1]
            entry = self._entries.get(key)
            if entry is None:
                continue
            if turn not in single:
                # Those before it may have taken the room.
                self.refresh()
                if not self._may_gain(entry.shape, gains):
                    continue
            yield entry.gang
            if turn in single or key in self._entries:
                continue
            if queue := self._queues.get(entry.shape):
                heappush(heap, queue[0])

    def _may_gain(self, shape: Shape, gains: Collection[NodeName]) -> bool:
        if self.saver is not None and self._queues[shape][0] <= self.saver.turn:
            return bool(gains)
        if not self._may_fit(shape):
            return False
        return any(self.copies.on(node, kind) for kind, _ in shape[1] for node in gains)

    def may_fit(self, gang: Gang, gains: Collection[NodeName] | None) -> bool:
        """False: the gang, for which room is saved, does not fit yet. `gains`: nodes that gained room since it was
        saved; None: any may have."""
        shape = self._entries[gang.key].shape
        saved = self._places.unbound(gang)
        if gains is not None and len(needs := _needs(shape)) == 1:
            # A part of a place is no place, unless the rest of it has just come free beside it.
            saved = [held for held in saved if held.node in gains or needs <= {need_of(held.units)}]
        # Each place saved, or part of one, makes room for one member at most, with what is free beside it.
        return self._may_fit(shape, len(saved))

    def _may_fit(self, shape: Shape, saved: int = 0) -> bool:
        """False: it does not fit."""
        needed, kinds, _ = shape
        most = {kind: self.copies.total(kind) + saved for kind, _ in kinds}
        if sum(min(count, most[kind]) for kind, count in kinds) >= needed:
            return True
        first = self._entries[self._queues[shape][0][-1]].gang
        others = [held for gang in self._giving_way(first.claims) for held in self._places.unbound(gang)]
        if not others:
            return False
        for kind in most:
            # What is free beside a place that is given up may make room for one more.
            most[kind] += sum(1 + copies_in(held.units, kind.need) for held in others)
        return sum(min(count, most[kind]) for kind, count in kinds) >= needed

    # -- whose turn it is ----------------------------------------------------------------------------------------

    def passed_by(self, gang: Gang) -> None:
        """The gang has its plan. Whoever is first in turn, and waits on, has been passed if that was another."""
        gang.rounds_lost, gang.behind, gang.saves_after = 0, 0.0, 0.0
        first = self.first()
        if first is not None and first.turn < gang.turn:
            first.passes += 1

    def first(self) -> Gang | None:
        """The gang that is first in turn, among those that would have room beside what stays, and that room may be
        saved for."""
        self._could_fit.refresh()
        # All that `_could_ever_fit` looks at: else room could be saved and given back for ever, as one knew better.
        company = self._places.company_changed(alone=self._alone > 0)
        now = (self._version, self._could_fit.changes, self._brake.version, company)
        if self._first[0] != now:
            self._first = (now, self._find_first())
        return self._first[1]

    def _find_first(self) -> Gang | None:
        heads = (next(filter(self._may_save, queue), None) for queue in self._queues.values())
        for turn in sorted(turn for turn in heads if turn is not None):
            entry = self._entries[turn[-1]]
            if self._could_ever_fit(entry):
                return entry.gang
        return None

    def _may_save(self, turn: Turn) -> bool:
        return turn[-1] not in self._paused and self._brake.allows(Act.SAVE_ROOM, turn[-1].namespace)

    def held_back(self, now: float) -> list[Gang]:
        """Gangs that were passed, or have waited, for long enough, and that no room is saved for as the brake holds
        that. Each is told of once while it waits."""
        if self._brake.everywhere.allows(Act.SAVE_ROOM) and not self._brake.labelled:
            return []
        waiting = (entry.gang for key, entry in self._entries.items() if key not in self._held_back)
        found = [gang for gang in waiting if self.is_due(gang, now) and not self._may_save(gang.turn)]
        self._held_back |= dict.fromkeys(gang.key for gang in found)
        return found

    def _could_ever_fit(self, entry: _Entry) -> bool:
        gang = entry.gang
        if self._places.is_constrained(gang):
            return self._places.could_ever_fit(gang)
        # Members of its own that are bound stay as well, and are those of no other gang of the shape.
        beside_its_own = not gang.bound or self._places.could_ever_fit(gang)
        return beside_its_own and self._could_fit(gang, entry.shape, entry.rank)

    def resume(self) -> None:
        """A new slice of work begins."""
        self.work.renew()
        self._could_fit.resume()

    def take_work(self, gang: Gang) -> None:
        """The gang is tried: each node is looked at for each kind of its members."""
        entry = self._entries.get(gang.key)
        self.work.take(len(self._ledger.rows) * (1 if entry is None else len(entry.shape[1])))

    @property
    def unsure(self) -> bool:
        """Whether `first` has not looked at all that has changed, for the slice of work was over."""
        return self._could_fit.unsure

    def is_due(self, gang: Gang, now: float) -> bool:
        return gang.passes >= self.patience.passes or now >= self._due_at(gang)

    def _due_at(self, gang: Gang) -> float:
        return float("inf") if gang.waits_since is None else gang.waits_since + self.patience.seconds

    def next_deadline(self) -> float | None:
        """When patience ends next, or what is saved is to be looked at, if nothing else happens."""
        first = self.first() if self._queues else None
        known = [
            None if first is None or first is self.saver else self._due_at(first),
            self.savings.next_deadline(saving=self.saver is not None),
            min(self._paused.values(), default=None),
        ]
        return min((when for when in known if when is not None), default=None)

    # -- what is saved -------------------------------------------------------------------------------------------

    def heed(self, now: float) -> Gang | None:
        """If patience has ended for the first in turn, room is saved for it from now on. That gang, if it is so now."""
        more_may_be_saved = self.savings.heed_time(now)
        for key in [key for key, until in self._paused.items() if until <= now]:
            del self._paused[key]
            self._version += 1
        saver = self.saver
        if saver is not None and not (self._may_save(saver.turn) and self._could_ever_fit(self._entries[saver.key])):
            self._give_back()
        elif self.saver is not None and self.savings.must_end():
            self._lose_turn(self.saver, now)
        first = self.first() if self._queues else None
        if first is None or first is self.saver or not self.is_due(first, now):
            if self.saver is not None and more_may_be_saved:
                self._save(self.saver, None, now)
                self.savings.heed_time(now)
            return None
        self._save_for(first, None, now)
        return first

    def _lose_turn(self, gang: Gang, now: float) -> None:
        self._give_back()
        gang.rounds_lost += 1
        gang.behind = max(entry.turn[1] for entry in self._entries.values() if entry.turn[0] == gang.turn[0])
        gang.saves_after = now + self.savings.thrift.pause(gang.rounds_lost)
        self._take_out(gang.key)
        self.enter(gang)
        self.lost.append(gang)

    def _give_back(self) -> None:
        if self.saver is not None:
            self._places.release(self.saver)
            self.saver = None

    def _save_for(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        if self.saver is not gang:
            self._give_back()
            self.saver = gang
            self.savings.begin(now)
        self._save(gang, nodes, now)

    def _save(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        part = self._places.save(gang, nodes, now + SAVED_SECONDS, self.savings.limit())
        self.savings.progress(part, now)

    def may_save_all(self, gang: Gang) -> bool:
        """Whether all that the gang needs may be saved for it now."""
        return self.savings.suffices(self._places.asked(gang))

    def save_at(self, gang: Gang, nodes: Sequence[NodeName], now: float) -> None:
        """Others are about to leave these nodes for the gang, which is first in turn: room is saved for it there."""
        self._save_for(gang, nodes, now)

    def save(self, gains: Collection[NodeName], now: float) -> None:
        """What is free now on the nodes that the saver waits for, or on those that gained, is reserved for it."""
        if self.saver is not None:
            waits_for = [held.node for held in self._places.unbound(self.saver)]
            nodes = list(dict.fromkeys((*waits_for, *gains))) if waits_for else None
            self._save(self.saver, nodes, now)

    def usable_by(self, gang: Gang) -> Sequence[Holder]:
        """What is saved for the gang itself, or for one behind it."""
        if self.saver is None or self.saver.turn < gang.turn:
            return ()
        return [held.holder for held in self._places.unbound(self.saver)]

    def gives_way_to(self, pod: Pod) -> Mapping[NodeName, Sequence[Holder]]:
        """What is saved for a gang of a lower priority than the pod's, which is in no gang: by node."""
        found: dict[NodeName, list[Holder]] = {}
        if self.saver is not None and pod.priority > self.saver.claims:
            for held in self._places.unbound(self.saver):
                found.setdefault(held.node, []).append(held.holder)
        return found

    def with_news_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """The nodes that gained room, and those on which what is saved gives way to more pods than when this was
        asked last."""
        before, saver = self._gave_way, self.saver
        self._gave_way = None if saver is None else (saver.key, saver.claims)
        if saver is None or self._gave_way == before:
            return gains
        return dict.fromkeys((*gains, *(held.node for held in self._places.unbound(saver))))

    # -- audit ---------------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[Violation]:
        self.refresh()
        yield from self.copies.violations()
        yield from self._could_fit.violations()
        if self._could_fit.shapes - self._queues.keys():
            yield Violation("turns", "it is kept whether shapes could fit of which nobody waits")
        yield from self.savings.violations(saving=self.saver is not None)
        for key, entry in self._entries.items():
            if (entry.shape, entry.turn) != (_shape_of(entry.gang), entry.gang.turn):
                yield Violation("turns", f"{key} has changed since it was put in its place")
        if self.saver is not None and self.saver.key not in self._entries:
            yield Violation("turns", f"room is saved for {self.saver.key}, which does not wait")
        if self._alone != (alone := sum(shape[2] is not None for shape in self._queues)):
            yield Violation("turns", f"{self._alone} shapes of their own, counted anew {alone}")
        turns: dict[Shape, list[Turn]] = {}
        for entry in self._entries.values():
            turns.setdefault(entry.shape, []).append(entry.turn)
        for shape, queue in self._queues.items():
            anew = sorted(turns.get(shape, ()))
            if queue != anew:
                yield Violation("turns", f"queue {queue}, by the entries {anew}")


def _shape_of(gang: Gang) -> Shape:
    kinds = Counter(kind_of(pod) for pod in gang.unplaced())
    alone = any(pod.constraints is not None for pod in gang.members.values())
    return gang.needed, frozenset(kinds.items()), gang.key if alone else None


def _needs(shape: Shape) -> set[Need]:
    return {kind.need for kind, _ in shape[1]}
