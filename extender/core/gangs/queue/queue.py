"""The queue: the order in which waiting gangs are tried, and the gang that room is reserved for.

A gang that does not fit is passed by others that do, so that no room is idle. `BackfillTrigger` limits that, for gangs
that would fit into the cluster beside resident pods (`resident_pods`). Their turn follows priority, then the order of
the policies, then age. The first in turn gets a backfill reservation once it was passed often enough, or has waited
long enough. Only one gang has one at a time, so that no two hold a part each. If the reservation must end (`backfill`),
the gang loses its turn: it and all gangs of its namespace go behind all gangs of its priority that wait now. No room is
reserved for it for a pause, which doubles each time. It is still tried whenever room comes free. During a first such
pause, new gangs of its namespace come after those of others: else a namespace would keep the turn with one gang after
another.

Policies of one namespace cannot make gangs of another wait for ever: a gang that enough younger gangs of other
namespaces were put before has its turn by age.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf, nextafter

from extender.core.common.timers import earliest
from extender.core.gangs.placement.slots import too_varied
from extender.core.gangs.queue.backfill import SavedRoom
from extender.core.gangs.queue.fit_index import Fits, Rank, Shape, shape_of
from extender.core.gangs.state.gang import Gang, Turn, TurnOrder
from extender.core.ledger.audit import Violation
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches
from extender.kube.names import NodeName


@dataclass(frozen=True, slots=True)
class BackfillTrigger:
    """Limits on bypasses of the first gang, and on its wait in seconds, before room is reserved."""

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
    """Equal for gangs to which the policies give one order; None: not known."""


class Queue:
    def __init__(self, fits: Fits, saved: SavedRoom, patience: BackfillTrigger, switches: SafetySwitches) -> None:
        self.fits = fits
        self.saved = saved
        self._patience = patience
        self.order = TurnOrder()
        self.lost: list[Gang] = []
        """Gangs that have lost their turn, and that have not been reported yet."""
        self._switches = switches
        self._entries: dict[GangKey, _Entry] = {}
        self._queues: dict[Shape, list[Turn]] = {}
        """Waiting gangs by shape, each list in turn."""
        self._line: list[Turn] = []
        """All waiting gangs, in turn."""
        self._alike: dict[Hashable, dict[GangKey, None]] = {}
        """Waiting gangs, by `_Entry.alike`."""
        self._orders: dict[Hashable, tuple[float, ...] | None] = {}
        """The order of each of these groups; absent or None: not known for the whole group."""
        self._alone = 0
        """Number of shapes that belong to a single gang."""
        self._paused: dict[GangKey, float] = {}
        """Waiting gangs without a reservation until then at least."""
        self.after_others: dict[str, float] = {}
        """Namespaces that lost a turn: until when their gangs come after those of others."""
        self.version = 0
        """Changes whenever a gang enters, leaves or moves."""
        self._first: tuple[tuple[int, ...], Gang | None] = ((), None)
        self._last_first: GangKey | None = None
        """The gang that was first when that was last known."""
        self.asked_about: GangKey | None = None
        """The gang that is being asked about, to know which is first."""
        self._ordered_by = 0
        self.left_alone: GangKey | None = None
        """The last candidate, if nothing may be planned for it now, whatever room there is."""
        self._held_back: dict[GangKey, None] = {}
        """Gangs already reported as without a reservation because of the safety switches."""

    # -- waiting gangs -------------------------------------------------------------------------------------------

    def enter(self, gang: Gang) -> None:
        """The gang waits for room, with its present members."""
        known = self._entries.get(gang.key)
        if known is not None and known.changes == gang.roster.changes:
            return
        shape = shape_of(gang)
        if not shape[1] and gang.roster.unplaced_count:
            gang.wait.shortfall = too_varied(gang)
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
        """Moves waiting gangs to their present order; returns whether any moved. O(waiting gangs).

        Policies are asked once for each group of `alike` gangs."""
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
        """The present order of this group; None: every gang in it has changed since it entered."""
        entries = (self._entries[key] for key in keys)
        one = next((each.gang for each in entries if each.changes == each.gang.roster.changes), None)
        if one is not None:
            self.order.place(one)
        return None if one is None else one.wait.order

    def leave(self, gang: Gang) -> None:
        """Removes the gang. Its plan takes its reservation, or the caller releases it."""
        self._take_out(gang.key)
        self.fits.leave(gang.key)
        self.saved.leave(gang)

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._entries

    def __iter__(self) -> Iterator[GangKey]:
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

    # -- candidates ----------------------------------------------------------------------------------------------

    def candidates(self, gains: Collection[NodeName], changed: Sequence[Turn]) -> Iterator[Gang]:
        """Gangs that may fit now, in turn. `gains`: nodes with gains. `changed`: changed gangs.

        Only the first of each shape is yielded. The next of its shape follows only if the first was placed (it has left
        by the next step), or is `left_alone`. Gangs that give way are skipped. If nothing fits: O(shapes), not
        O(gangs).
        """
        if self.reorder():
            changed = self.in_turn(turn[-1] for turn in changed)
        self.fits.refresh()
        # Mostly no node has room for any gang.
        anybody = self.fits.anybody_gained(gains)
        shapes = self._queues if anybody else self._before_saved()
        heads = {shape: self._queues[shape][0] for shape in shapes if self._may_gain(shape, gains)}
        first = set(heads.values())
        # The changed gangs may be thousands, and are looked at one by one.
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
                # Gangs before it may have taken the room.
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
                    # The reason why nothing is planned for it concerns only this gang: no other waits behind it.
                    passed[entry.shape] = turn
                    passed_over.add(key)
                queue = self._queues.get(entry.shape, ())
                after = bisect_right(queue, passed[entry.shape]) if entry.shape in passed else 0
                if (following := self._not_giving_way(queue, after, passed_over)) is not None:
                    heads[entry.shape] = following
                    heappush(heap, following)
            single.discard(turn)
            if placed and self.reorder():
                # The room that it uses counts from now on.
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
        """The turns of these gangs, sorted, without those that do not wait."""
        return sorted([entry.turn for entry in map(self._entries.get, keys) if entry is not None])

    def is_as_it_was(self, gang: Gang) -> bool:
        """Whether the gang waits here, and its members have not changed since it entered."""
        known = self._entries.get(gang.key)
        return known is not None and known.changes == gang.roster.changes and known.shape[0] == gang.needed

    def _not_giving_way(self, queue: Sequence[Turn], after: int, but: Collection[GangKey]) -> Turn | None:
        """The first turn from `after` on, not in `but`, whose namespace does not give way.

        Gangs that give way may be thousands."""
        giving_way = self.fits.plans.giving_way
        following = (queue[at] for at in range(after, len(queue)))
        return next((turn for turn in following if turn[-1].namespace not in giving_way and turn[-1] not in but), None)

    def _before_saved(self) -> list[Shape]:
        """Shapes whose first gang precedes, or is, the gang with the reservation: it may use that."""
        if self.saved.gang is None:
            return []
        turn = self.saved.gang.turn
        return [shape for shape, queue in self._queues.items() if queue[0] <= turn]

    def _may_gain(self, shape: Shape, gains: Collection[NodeName]) -> bool:
        if not shape[1]:
            # It is too varied for a plan, whatever room there is.
            return False
        if self.saved.gang is not None and self._queues[shape][0] <= self.saved.gang.turn:
            return bool(gains)
        return self.fits.gained(shape, gains) and self._may_fit(shape)

    def _may_fit(self, shape: Shape, saved: int = 0) -> bool:
        return self.fits.may_fit(shape, self._entries[self._queues[shape][0][-1]].gang, saved)

    def may_fit(self, gang: Gang, gains: Collection[NodeName] | None) -> bool:
        """False: the gang with the reservation does not fit yet.

        `gains`: nodes that gained room since the reservation; None: any may have."""
        shape = self._entries[gang.key].shape
        # Each reserved place, or part, makes room for at most one member, with what is free beside it.
        return self._may_fit(shape, self.fits.places_saved(gang, shape, gains))

    # -- turns ---------------------------------------------------------------------------------------------------

    def passed_by(self, gang: Gang) -> None:
        """The gang has its plan. If another gang is first in turn, that one was passed."""
        gang.wait.rounds_lost, gang.wait.behind, gang.wait.behind_order, gang.wait.saves_after = 0, 0.0, (), 0.0
        gang.wait.overtaken, gang.wait.by_age = 0, False
        # The orders are still those of before: what the gang uses now counts for later gangs.
        first = self.first()
        last = self._last_first
        if first is None and self.fits.is_unsure and last is not None and (entry := self._entries.get(last)):
            # A departure changes the answers just before gangs take its room.
            first = entry.gang
        if first is not None and first.turn < gang.turn:
            first.wait.bypasses += 1
        if self.order.version():
            self._on_overtaking(gang)

    def _on_overtaking(self, gang: Gang) -> None:
        """Counts `overtaken` for older gangs of equal priority elsewhere. O(waiting gangs)."""
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
        """The first gang in turn that would fit beside resident pods and may have a reservation.

        None also while that is not known (`Fits.is_unsure`): the next slice of work goes on."""
        if not self._entries:
            return None
        versions = self.version, self._switches.version, self.fits.plans.version
        now = (*versions, *self.fits.ever_changed(alone=self._alone > 0))
        if self._first[0] != now:
            self._first = (now, self._find_first())
            if (first := self._first[1]) is not None or not self.fits.is_unsure:
                self._last_first = None if first is None else first.key
        return self._first[1]

    def _find_first(self) -> Gang | None:
        for turn in self._firsts():
            self.asked_about = turn[-1]
            entry = self._entries[turn[-1]]
            could = self.fits.could_ever(entry.gang, entry.shape, entry.rank)
            self.asked_about = None
            if could is not False:
                # Of an unknown answer nothing follows: no other gang is first instead.
                return entry.gang if could else None
        return None

    def _firsts(self) -> Iterator[Turn]:
        """The first gang of each shape that may have a reservation, in turn; `after_others` last."""
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
        return not held_back and self._switches.allows(Act.SAVE_ROOM, namespace)

    def held_back(self, now: float) -> list[Gang]:
        """Gangs due for a reservation that safety switches forbid; each is returned once."""
        if not self._entries or (self._switches.everywhere.allows(Act.SAVE_ROOM) and not self._switches.labelled):
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
        """When the next patience ends, or the reservation must be looked at, without other events."""
        first = self.first()
        return earliest(
            None if first is None or first is self.saved.gang else self._due_at(first),
            self.saved.savings.next_deadline(saving=self.saved.gang is not None),
            *self._paused.values(),
            *self.after_others.values(),
        )

    # -- reservation ---------------------------------------------------------------------------------------------

    def on_time(self, now: float) -> Gang | None:
        """Starts a reservation for the first gang if its patience has ended; returns it if new."""
        more_may_be_saved = self.saved.savings.on_time(now)
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
        if not self._may_save(entry.turn):
            return False
        return self.fits.could_ever(entry.gang, entry.shape, entry.rank) is not False

    def _lose_turn(self, gang: Gang, now: float) -> None:
        self.saved.give_back()
        gang.wait.rounds_lost += 1
        gang.wait.overtaken, gang.wait.by_age = 0, False
        self.fits.plans.in_vain(gang, now)
        contention = [entry for entry in self._entries.values() if entry.turn[0] == gang.turn[0]]
        # With equal age, a gang that was there before would precede them.
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
                yield Violation("queue", f"{key} has changed since it was queued")
        if self.saved.gang is not None and self.saved.gang.key not in self._entries:
            yield Violation("queue", f"the backfill reservation is for {self.saved.gang.key}, which does not wait")
        if self._alone != (alone := sum(shape[2] is not None for shape in self._queues)):
            yield Violation("queue", f"{self._alone} shapes of single gangs, recounted {alone}")
        turns: dict[Shape, list[Turn]] = {}
        for entry in self._entries.values():
            turns.setdefault(entry.shape, []).append(entry.turn)
        for shape, queue in self._queues.items():
            anew = sorted(turns.get(shape, ()))
            if queue != anew:
                yield Violation("queue", f"queue {queue}, from the entries {anew}")
        if self._line != (anew := sorted(entry.turn for entry in self._entries.values())):
            yield Violation("queue", f"in turn {self._line}, from the entries {anew}")
