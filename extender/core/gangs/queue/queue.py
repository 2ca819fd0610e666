"""The queue: in which order waiting gangs are tried when room comes free, and room saved for the one whose turn it is.

A gang that does not fit is passed by others that do, for room should not stand idle. That has a bound,
`BackfillTrigger`: among those that would fit into the cluster beside what stays there (`resident_pods`), room is saved
for the first in turn (priority, then the order of the policies, then age) once it was passed so often, or has waited so
long; for one gang at a time, so that no two hold a part each. Where that must end (`backfill`), the gang has lost its
turn: it goes behind all of its priority that wait now, and so do all gangs of its namespace. No room is saved for it
for a time, twice as long each time. It is tried as before whenever room comes free. For as long as the first such time
those of its namespace that come have their turn after those of others: else a namespace would keep it with one after
another.

Policies of one namespace do not have gangs of another wait for ever: one that as many younger gangs of others were put
before has its turn by age.

Knows who waits and what for; must not know phases, barriers, nor how a gang is planned: see `gangs`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf, nextafter

from extender.core.audit import Violation
from extender.core.gangs.queue.backfill import SavedRoom
from extender.core.gangs.queue.fit_index import Fits, Rank, Shape, shape_of
from extender.core.gangs.state.gang import Gang, Turn, TurnOrder
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches
from extender.core.timers import earliest
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class BackfillTrigger:
    """How often the gang that is first in turn may be bypassed, and how many seconds it waits, before room is saved."""

    bypasses: int = 8
    seconds: float = 60.0


DEFAULT_PATIENCE = BackfillTrigger()


@dataclass(frozen=True, slots=True)
class _Entry:
    gang: Gang
    shape: Shape
    turn: Turn
    rank: Rank
    changes: int
    alike: Hashable
    """The same for all that the policies have in one place; None: that is not known."""


class Queue:
    def __init__(self, fits: Fits, saved: SavedRoom, patience: BackfillTrigger, brake: SafetySwitches) -> None:
        self.fits = fits
        self.saved = saved
        self._patience = patience
        self.order = TurnOrder()
        self.lost: list[Gang] = []
        """Gangs that have lost their turn, and that nobody has been told of."""
        self._brake = brake
        self._entries: dict[GangKey, _Entry] = {}
        self._queues: dict[Shape, list[Turn]] = {}
        """Those who wait, by shape, each in turn."""
        self._line: list[Turn] = []
        """All of them, in turn."""
        self._alike: dict[Hashable, dict[GangKey, None]] = {}
        """Those who wait, by whom the policies have in one place."""
        self._orders: dict[Hashable, tuple[float, ...] | None] = {}
        """Where these stand, all of them; of some it is not known."""
        self._alone = 0
        """How many of them have a shape of their own."""
        self._paused: dict[GangKey, float] = {}
        """Gangs that wait and that no room is saved for, until then at least."""
        self.after_others: dict[str, float] = {}
        """Namespaces of which a gang has lost its turn: until when their gangs come after those of others."""
        self.version = 0
        """Another whenever somebody has come, gone, or stands elsewhere."""
        self._first: tuple[tuple[int, ...], Gang | None] = ((), None)
        self._ordered_by = 0
        self.left_alone: GangKey | None = None
        """The gang that came last, if nothing is to be planned for it now, whatever room there is."""
        self._held_back: dict[GangKey, None] = {}
        """Gangs of which it was told that the brake keeps room from being saved for them."""

    # -- who waits -----------------------------------------------------------------------------------------------

    def enter(self, gang: Gang) -> None:
        """The gang waits for room, with members as they are now."""
        known = self._entries.get(gang.key)
        if known is not None and known.changes == gang.roster.changes:
            return
        shape = shape_of(gang)
        is_new = shape not in self._queues or (
            known is not None and known.shape == shape and len(self._queues[shape]) == 1
        )
        if is_new:
            # Before the old shape is forgotten: the kinds that both have are not counted anew.
            self.fits.follow(shape)
        self._take_out(gang.key)
        self.order.place(gang)
        rank = gang.terms.claims if gang.roster.preempts else None
        alike = self.order.alike(list(gang.roster.unplaced()))
        entry = self._entries[gang.key] = _Entry(gang, shape, gang.turn, rank, gang.roster.changes, alike)
        if alike not in self._alike:
            self._orders[alike] = gang.wait.order
        elif self._orders.get(alike) != gang.wait.order:
            self._orders.pop(alike, None)
        self._alike.setdefault(alike, {})[gang.key] = None
        if is_new:
            self._queues[shape] = []
            self._alone += shape[2] is not None
        insort(self._queues[shape], entry.turn)
        insort(self._line, entry.turn)
        if gang.wait.saves_after:
            self._paused[gang.key] = gang.wait.saves_after
        self.version += 1

    def reorder(self) -> bool:
        """Everybody who waits stands where the policies have it now. Whether that is another place for somebody.
        O(those that wait), if they have it otherwise; one is asked about for all that have one place."""
        if not self._entries:
            return False
        if self._ordered_by == (version := self.order.version()):
            return False
        self._ordered_by = version
        moved: dict[int, list[Turn]] = {}
        for alike, keys in self._alike.items():
            self.fits.work.take(1)
            order = None if alike is None else self._order_of_all(keys)
            if order is not None and self._orders.get(alike) == order:
                continue
            self._orders[alike] = order
            self.fits.work.take(len(keys))
            for key in keys:
                entry = self._entries[key]
                if order is None or entry.changes != entry.gang.roster.changes:
                    self.order.place(entry.gang)
                else:
                    entry.gang.wait.order = order
                if (turn := entry.gang.turn) != entry.turn:
                    queue = self._queues[entry.shape]
                    moved[id(queue)] = queue
                    self._entries[key] = replace(entry, turn=turn)
        for queue in [*moved.values(), *([self._line] if moved else ())]:
            queue[:] = self.in_turn(turn[-1] for turn in queue)
        self.version += bool(moved)
        return bool(moved)

    def _order_of_all(self, keys: Iterable[GangKey]) -> tuple[float, ...] | None:
        """Where the policies have all of these, which are alike; None: none of them is as it was when it came."""
        entries = (self._entries[key] for key in keys)
        one = next((each.gang for each in entries if each.changes == each.gang.roster.changes), None)
        if one is not None:
            self.order.place(one)
        return None if one is None else one.wait.order

    def leave(self, gang: Gang) -> None:
        """It does not wait for room, or not now. What was saved for it is its plan's, or is released by the caller."""
        self._take_out(gang.key)
        self.fits.forget_alone(gang.key)
        self.saved.leave(gang)

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._entries

    def __iter__(self) -> Iterator[GangKey]:
        """All that wait."""
        return iter(self._entries)

    def _take_out(self, key: GangKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._held_back.pop(key, None)
        del self._alike[entry.alike][key]
        if not self._alike[entry.alike]:
            del self._alike[entry.alike]
            self._orders.pop(entry.alike, None)
        self.version += 1
        self._paused.pop(key, None)
        queue = self._queues[entry.shape]
        for turns in (queue, self._line):
            del turns[bisect_left(turns, entry.turn)]
        if not queue:
            del self._queues[entry.shape]
            self._alone -= entry.shape[2] is not None
            self.fits.forget(entry.shape)

    # -- whom to try ---------------------------------------------------------------------------------------------

    def candidates(self, gains: Collection[NodeName], changed: Sequence[Turn]) -> Iterator[Gang]:
        """Gangs that may fit now, in turn, given nodes that gained room and gangs whose members changed, as `in_turn`.

        One of each shape at a time: only if it was placed (it has left by the next step), or is `left_alone`, the next
        of its shape comes that does not give way. O(shapes), and not O(gangs), where nothing fits.
        """
        if self.reorder():
            changed = self.in_turn(turn[-1] for turn in changed)
        self.fits.refresh()
        # Mostly nobody has room.
        anybody = self.fits.anybody_gained(gains)
        shapes = self._queues if anybody else self._before_saved()
        heads = {shape: self._queues[shape][0] for shape in shapes if self._may_gain(shape, gains)}
        first = set(heads.values())
        # Those who have changed may be thousands, and are looked at one by one.
        single = {self.saved.gang.turn} - first if self.saved.gang is not None and gains else set()
        heap, at = [*heads.values(), *single], 0
        heapify(heap)
        passed: dict[Shape, Turn] = {}
        passed_over: set[GangKey] = set()
        while heap or at < len(changed):
            if has_changed := at < len(changed) and not (heap and heap[0] < changed[at]):
                turn, at = changed[at], at + 1
                if turn in first or turn in single:
                    continue
            else:
                turn = heappop(heap)
            key = turn[-1]
            entry = self._entries.get(key)
            if entry is None:
                continue
            by_itself = has_changed or turn in single
            if not by_itself:
                # Those before it may have taken the room.
                self.fits.refresh()
                if not self._may_gain(entry.shape, gains):
                    heads.pop(entry.shape, None)
                    continue
            yield entry.gang
            placed = key not in self._entries
            if not by_itself:
                heads.pop(entry.shape, None)
            if not by_itself and (placed or key == self.left_alone):
                if not placed:
                    # Why nothing is planned for it is its own trouble: nobody waits behind it.
                    passed[entry.shape] = turn
                    passed_over.add(key)
                queue = self._queues.get(entry.shape, ())
                after = bisect_right(queue, passed[entry.shape]) if entry.shape in passed else 0
                if (following := self._not_giving_way(queue, after, passed_over)) is not None:
                    heads[entry.shape] = following
                    heappush(heap, following)
            single.discard(turn)
            if placed and self.reorder():
                # What it uses counts from now on.
                passed.clear()
                to_try = {each[-1] for each in single}
                changed, at = self.in_turn(each[-1] for each in changed[at:] if each not in first), 0
                for shape in list(heads):
                    following = self._not_giving_way(self._queues.get(shape, ()), 0, passed_over)
                    if following is None:
                        del heads[shape]
                    else:
                        heads[shape] = following
                first = set(heads.values())
                again = (entry.turn for each in to_try if (entry := self._entries.get(each)) is not None)
                single = {turn for turn in again if turn not in first}
                heap = [*first, *single]
                heapify(heap)

    def in_turn(self, keys: Iterable[GangKey]) -> list[Turn]:
        """Where those of them stand that wait."""
        return sorted([entry.turn for entry in map(self._entries.get, keys) if entry is not None])

    def is_as_it_was(self, gang: Gang) -> bool:
        """It waits here, and nothing about its members has changed since it came."""
        known = self._entries.get(gang.key)
        return known is not None and known.changes == gang.roster.changes and known.shape[0] == gang.needed

    def _not_giving_way(self, queue: Sequence[Turn], after: int, but: Collection[GangKey]) -> Turn | None:
        """The first from there on, but for these, of whose namespace gangs may be planned: those that give way may be
        thousands."""
        giving_way = self.fits.plans.giving_way
        following = (queue[at] for at in range(after, len(queue)))
        return next((turn for turn in following if turn[-1].namespace not in giving_way and turn[-1] not in but), None)

    def _before_saved(self) -> list[Shape]:
        """Those of whom one has its turn no later than the gang for which room is saved: it may use that."""
        if self.saved.gang is None:
            return []
        turn = self.saved.gang.turn
        return [shape for shape, queue in self._queues.items() if queue[0] <= turn]

    def _may_gain(self, shape: Shape, gains: Collection[NodeName]) -> bool:
        if self.saved.gang is not None and self._queues[shape][0] <= self.saved.gang.turn:
            return bool(gains)
        return self.fits.gained(shape, gains) and self._may_fit(shape)

    def _may_fit(self, shape: Shape, saved: int = 0) -> bool:
        return self.fits.may_fit(shape, self._entries[self._queues[shape][0][-1]].gang, saved)

    def may_fit(self, gang: Gang, gains: Collection[NodeName] | None) -> bool:
        """False: the gang, for which room is saved, does not fit yet. `gains`: nodes that gained room since it was
        saved; None: any may have."""
        shape = self._entries[gang.key].shape
        # Each place saved, or part of one, makes room for one member at most, with what is free beside it.
        return self._may_fit(shape, self.fits.places_saved(gang, shape, gains))

    # -- whose turn it is ----------------------------------------------------------------------------------------

    def passed_by(self, gang: Gang) -> None:
        """The gang has its plan. Whoever is first in turn, and waits on, has been passed if that was another."""
        gang.wait.rounds_lost, gang.wait.behind, gang.wait.behind_order, gang.wait.saves_after = 0, 0.0, (), 0.0
        gang.wait.overtaken, gang.wait.by_age = 0, False
        # Its order, and that of those that wait, is that of before: what it uses now counts for who comes next.
        first = self.first()
        if first is not None and first.turn < gang.turn:
            first.wait.bypasses += 1
        if self.order.version():
            self._heed_overtaking(gang)

    def _heed_overtaking(self, gang: Gang) -> None:
        """Policies had it go before older ones of other namespaces, for which the same priority speaks. O(those that
        wait)."""
        turn, older = gang.turn, list[Gang]()
        for key, entry in self._entries.items():
            is_older = entry.turn[0] == turn[0] and entry.turn[2] < turn[2]
            if is_older and key.namespace != gang.key.namespace and entry.turn[1] > turn[1]:
                older.append(entry.gang)
        for each in older:
            each.wait.overtaken += 1
            if each.wait.overtaken >= self._patience.bypasses:
                each.wait.by_age = True
                self._take_out(each.key)
                self.enter(each)

    def first(self) -> Gang | None:
        """The gang that is first in turn, among those that would have room beside what stays, and that room may be
        saved for."""
        if not self._entries:
            return None
        versions = self.version, self._brake.version, self.fits.plans.version
        now = (*versions, *self.fits.ever_changed(alone=self._alone > 0))
        if self._first[0] != now:
            self._first = (now, self._find_first())
        return self._first[1]

    def _find_first(self) -> Gang | None:
        entries = (self._entries[turn[-1]] for turn in self._firsts())
        found = next((each.gang for each in entries if self.fits.could_ever(each.gang, each.shape, each.rank)), None)
        self.fits.all_were_asked()
        return found

    def _firsts(self) -> Iterator[Turn]:
        """Of each shape the first for which room may be saved, in turn; of one priority those of namespaces that come
        after others last."""
        after: list[Turn] = []
        seen: set[Shape] = set()
        for turn in filter(self._may_save, self._line):
            if (shape := self._entries[turn[-1]].shape) in seen:
                continue
            seen.add(shape)
            last = len(seen) == len(self._queues)
            if after and after[0][0] != turn[0]:
                yield from after
                after = []
            if turn[-1].namespace in self.after_others:
                after.append(turn)
            else:
                yield turn
            if last:
                break
        yield from after

    def _may_save(self, turn: Turn) -> bool:
        namespace = turn[-1].namespace
        held_back = turn[-1] in self._paused or namespace in self.fits.plans.giving_way
        return not held_back and self._brake.allows(Act.SAVE_ROOM, namespace)

    def held_back(self, now: float) -> list[Gang]:
        """Gangs that were passed, or have waited, for long enough, and that no room is saved for as the brake holds
        that. Each is told of once while it waits."""
        if not self._entries or (self._brake.everywhere.allows(Act.SAVE_ROOM) and not self._brake.labelled):
            return []
        waiting = (entry.gang for key, entry in self._entries.items() if key not in self._held_back)
        found = [gang for gang in waiting if self._is_due(gang, now) and not self._may_save(gang.turn)]
        self._held_back |= dict.fromkeys(gang.key for gang in found)
        return found

    def _is_due(self, gang: Gang, now: float) -> bool:
        return gang.wait.bypasses >= self._patience.bypasses or now >= self._due_at(gang)

    def _due_at(self, gang: Gang) -> float:
        return float("inf") if gang.wait.since is None else gang.wait.since + self._patience.seconds

    def next_deadline(self) -> float | None:
        """When patience ends next, or what is saved is to be looked at, if nothing else happens."""
        first = self.first()
        return earliest(
            # Another slice of work finds out who is first.
            0.0 if self.fits.unsure else None,
            None if first is None or first is self.saved.gang else self._due_at(first),
            self.saved.savings.next_deadline(saving=self.saved.gang is not None),
            *self._paused.values(),
            *self.after_others.values(),
        )

    # -- what is saved -------------------------------------------------------------------------------------------

    def heed(self, now: float) -> Gang | None:
        """If patience has ended for the first in turn, room is saved for it from now on. That gang, if it is so now."""
        more_may_be_saved = self.saved.savings.heed_time(now)
        for key in [key for key, until in self._paused.items() if until <= now]:
            del self._paused[key]
            self.version += 1
        for namespace in [namespace for namespace, until in self.after_others.items() if until <= now]:
            del self.after_others[namespace]
            self.version += 1
        saver = self.saved.gang
        if saver is not None and not self._may_be_saved_for(self._entries[saver.key]):
            self.saved.give_back()
        elif saver is not None and self.saved.savings.must_end():
            self._lose_turn(saver, now)
        first = self.first()
        if first is None or first is self.saved.gang or not self._is_due(first, now):
            if more_may_be_saved:
                self.saved.save_more(now)
            return None
        self.saved.begin(first, None, now)
        return first

    def _may_be_saved_for(self, entry: _Entry) -> bool:
        return self._may_save(entry.turn) and self.fits.could_ever(entry.gang, entry.shape, entry.rank)

    def _lose_turn(self, gang: Gang, now: float) -> None:
        self.saved.give_back()
        gang.wait.rounds_lost += 1
        gang.wait.overtaken, gang.wait.by_age = 0, False
        self.fits.plans.in_vain(gang, now)
        contention = [entry for entry in self._entries.values() if entry.turn[0] == gang.turn[0]]
        # Of equal age a gang that was there before would be before them.
        behind = nextafter(max(entry.turn[2] for entry in contention), inf)
        gang.wait.behind_order = max(entry.turn[1] for entry in contention)
        gang.wait.saves_after = now + self.saved.savings.thrift.pause(gang.wait.rounds_lost)
        self.after_others[gang.key.namespace] = now + self.saved.savings.thrift.pause(1)
        own = [entry.gang for entry in contention if entry.gang.key.namespace == gang.key.namespace]
        for each in own if len(own) < len(contention) else [gang]:
            each.wait.behind = behind
            self._take_out(each.key)
            self.enter(each)
        self.lost.append(gang)

    def violations(self) -> Iterator[Violation]:
        yield from self.fits.violations(self._queues.keys())
        yield from self.saved.violations()
        for key, entry in self._entries.items():
            if (entry.shape, entry.turn) != (shape_of(entry.gang), entry.gang.turn):
                yield Violation("queue", f"{key} has changed since it was put in its place")
        if self.saved.gang is not None and self.saved.gang.key not in self._entries:
            yield Violation("queue", f"room is saved for {self.saved.gang.key}, which does not wait")
        if self._alone != (alone := sum(shape[2] is not None for shape in self._queues)):
            yield Violation("queue", f"{self._alone} shapes of their own, counted anew {alone}")
        turns: dict[Shape, list[Turn]] = {}
        for entry in self._entries.values():
            turns.setdefault(entry.shape, []).append(entry.turn)
        for shape, queue in self._queues.items():
            anew = sorted(turns.get(shape, ()))
            if queue != anew:
                yield Violation("queue", f"queue {queue}, by the entries {anew}")
        if self._line != (anew := sorted(entry.turn for entry in self._entries.values())):
            yield Violation("queue", f"in turn {self._line}, by the entries {anew}")
