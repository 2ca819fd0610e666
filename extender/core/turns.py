"""Turns: in which order waiting gangs are tried when room comes free, and room saved for the one whose turn it is.

A gang that does not fit is passed by others that do, for room should not stand idle. That has a bound, `Patience`:
among those that would fit into the cluster if it were empty, room is saved for the first in turn (priority, then age)
once it was passed so often, or has waited so long. What comes free on the nodes that it could be on is reserved, place
by place and part by part, until its whole quorum has room. Nobody takes that but gangs before it in turn, and pods of
a higher priority. Room is saved for one gang at a time, so that no two hold a part each.

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
from extender.core.cluster import Pod, SelectorTerm, Toleration
from extender.core.copies import Copies, Need, copies_in, need_of
from extender.core.gang import Gang, Turn
from extender.core.ledger import Holder, Ledger
from extender.core.names import GangKey, NodeName
from extender.core.places import Places

SAVED_SECONDS = 60.0
"""After so long without news, where room is saved is looked for anew."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the gang that is first in turn may be passed, and how many seconds it waits, before room is saved."""

    passes: int = 8
    seconds: float = 60.0


DEFAULT_PATIENCE = Patience()

PodKind = tuple[Need, frozenset[tuple[str, str]], tuple[SelectorTerm, ...], tuple[Toleration, ...]]
Shape = tuple[int, frozenset[tuple[PodKind, int]], GangKey | None]
"""How many members a gang needs placed, and how many it has of each kind: of one shape, all fit or none does. A gang
whose members require something of the pods around has a shape of its own."""


@dataclass(frozen=True, slots=True)
class _Entry:
    gang: Gang
    shape: Shape
    turn: Turn
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
    ) -> None:
        self._brake = brake or Brake()
        self.saver: Gang | None = None
        """The gang that room is saved for."""
        self._ledger = ledger
        self._places = places
        self.patience = patience
        self._giving_way = giving_way
        self._copies = Copies(ledger)
        self._entries: dict[GangKey, _Entry] = {}
        self._queues: dict[Shape, list[Turn]] = {}
        """Those who wait, by shape, each in turn."""
        self._could_fit: dict[Shape, tuple[int, bool]] = {}
        """Whether an empty cluster would have room for the shape, and the ledger's `capacity_count` of that answer."""
        self._version = 0
        self._first: tuple[tuple[int, int, int, int], Gang | None] = ((-1, -1, -1, -1), None)
        self._held_back: dict[GangKey, None] = {}
        """Gangs of which it was told that the brake keeps room from being saved for them."""

    # -- who waits -----------------------------------------------------------------------------------------------

    def enter(self, gang: Gang) -> None:
        """The gang waits for room, with members as they are now."""
        known = self._entries.get(gang.key)
        if known is not None and known.changes == gang.changes:
            return
        self._take_out(gang.key)
        entry = self._entries[gang.key] = _Entry(gang, _shape_of(gang), gang.turn, gang.changes)
        if entry.shape not in self._queues:
            self._queues[entry.shape] = []
            for need in _needs(entry.shape):
                self._copies.follow(need)
        insort(self._queues[entry.shape], entry.turn)
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
        queue = self._queues[entry.shape]
        del queue[bisect_left(queue, entry.turn)]
        if not queue:
            del self._queues[entry.shape]
            self._could_fit.pop(entry.shape, None)
            for need in _needs(entry.shape):
                self._copies.leave(need)

    # -- whom to try ---------------------------------------------------------------------------------------------

    def candidates(self, gains: Collection[NodeName], stirred: Collection[GangKey]) -> Iterator[Gang]:
        """Gangs that may fit now, in turn, given nodes that gained room and gangs whose members changed.

        One of each shape at a time: only if it was placed (it has left by the next step) the next of its shape comes.
        O(shapes), and not O(gangs), where nothing fits.
        """
        self._copies.refresh()
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
            yield entry.gang
            if turn in single or key in self._entries:
                continue
            self._copies.refresh()
            queue = self._queues.get(entry.shape)
            if queue and self._may_fit(entry.shape):
                heappush(heap, queue[0])

    def _may_gain(self, shape: Shape, gains: Collection[NodeName]) -> bool:
        if self.saver is not None and self._queues[shape][0] <= self.saver.turn:
            return bool(gains)
        news = any(self._copies.on(node, need) for need in _needs(shape) for node in gains)
        return news and self._may_fit(shape)

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
        """False: it does not fit. Selectors and taints are not asked."""
        needed, kinds, _ = shape
        most = {need: self._copies.total(need) + saved for need in _needs(shape)}
        if sum(min(count, most[kind[0]]) for kind, count in kinds) >= needed:
            return True
        first = self._entries[self._queues[shape][0][-1]].gang
        others = [held for gang in self._giving_way(first.priority) for held in self._places.unbound(gang)]
        for need in most:
            # What is free beside a place that is given up may make room for one more.
            most[need] += sum(1 + copies_in(held.units, need) for held in others)
        return sum(min(count, most[kind[0]]) for kind, count in kinds) >= needed

    # -- whose turn it is ----------------------------------------------------------------------------------------

    def passed_by(self, gang: Gang) -> None:
        """The gang has its plan. Whoever is first in turn, and waits on, has been passed if that was another."""
        first = self.first()
        if first is not None and first.turn < gang.turn:
            first.passes += 1

    def first(self) -> Gang | None:
        """The gang that is first in turn, among those that an empty cluster would have room for, and that room may be
        saved for."""
        # All that `_could_ever_fit` looks at: else room could be saved and given back for ever, as one knew better.
        alone = any(shape[2] is not None for shape in self._queues)
        company = self._places.company_changed(alone=alone)
        now = (self._version, self._ledger.capacity_count, self._brake.version, company)
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
        return self._brake.allows(Act.SAVE_ROOM, turn[-1].namespace)

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
        if self._places.is_constrained(entry.gang):
            return self._places.could_ever_fit(entry.gang)
        counted, could_fit = self._could_fit.get(entry.shape, (-1, False))
        if counted != self._ledger.capacity_count:
            could_fit = self._places.could_ever_fit(entry.gang)
            self._could_fit[entry.shape] = (self._ledger.capacity_count, could_fit)
        return could_fit

    def is_due(self, gang: Gang, now: float) -> bool:
        return gang.passes >= self.patience.passes or now >= self._due_at(gang)

    def _due_at(self, gang: Gang) -> float:
        return float("inf") if gang.waits_since is None else gang.waits_since + self.patience.seconds

    def next_deadline(self) -> float | None:
        """When patience ends next, if nothing else happens."""
        first = self.first() if self._queues else None
        return None if first is None or first is self.saver else self._due_at(first)

    # -- what is saved -------------------------------------------------------------------------------------------

    def heed(self, now: float) -> Gang | None:
        """If patience has ended for the first in turn, room is saved for it from now on. That gang, if it is so now."""
        saver = self.saver
        if saver is not None and not (self._may_save(saver.turn) and self._could_ever_fit(self._entries[saver.key])):
            self._give_back()
        first = self.first() if self._queues else None
        if first is None or first is self.saver or not self.is_due(first, now):
            return None
        self._give_back()
        self.saver = first
        self._places.save(first, None, now + SAVED_SECONDS)
        return first

    def _give_back(self) -> None:
        if self.saver is not None:
            self._places.release(self.saver)
            self.saver = None

    def save_at(self, gang: Gang, nodes: Sequence[NodeName], now: float) -> None:
        """Others are about to leave these nodes for the gang, which is first in turn: room is saved for it there."""
        if self.saver is not gang:
            self._give_back()
        self.saver = gang
        self._places.save(gang, nodes, now + SAVED_SECONDS)

    def save(self, gains: Collection[NodeName], now: float) -> None:
        """What is free now on the nodes that the saver waits for, or on those that gained, is reserved for it."""
        if self.saver is not None:
            waits_for = [held.node for held in self._places.unbound(self.saver)]
            nodes = list(dict.fromkeys((*waits_for, *gains))) if waits_for else None
            self._places.save(self.saver, nodes, now + SAVED_SECONDS)

    def usable_by(self, gang: Gang) -> Sequence[Holder]:
        """What is saved for the gang itself, or for one behind it."""
        if self.saver is None or self.saver.turn < gang.turn:
            return ()
        return [held.holder for held in self._places.unbound(self.saver)]

    def gives_way_to(self, pod: Pod) -> Mapping[NodeName, Sequence[Holder]]:
        """What is saved for a gang of a lower priority than the pod's, which is in no gang: by node."""
        found: dict[NodeName, list[Holder]] = {}
        if self.saver is not None and pod.priority > self.saver.priority:
            for held in self._places.unbound(self.saver):
                found.setdefault(held.node, []).append(held.holder)
        return found

    # -- audit ---------------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[Violation]:
        yield from self._copies.violations()
        for key, entry in self._entries.items():
            if (entry.shape, entry.turn) != (_shape_of(entry.gang), entry.gang.turn):
                yield Violation("turns", f"{key} has changed since it was put in its place")
        if self.saver is not None and self.saver.key not in self._entries:
            yield Violation("turns", f"room is saved for {self.saver.key}, which does not wait")
        for shape, queue in self._queues.items():
            anew = sorted(entry.turn for entry in self._entries.values() if entry.shape == shape)
            if queue != anew:
                yield Violation("turns", f"queue {queue}, by the entries {anew}")


def _shape_of(gang: Gang) -> Shape:
    kinds = Counter[PodKind](
        (need_of(pod.requests), frozenset(pod.node_selector.items()), pod.affinity, pod.tolerations)
        for pod in gang.unplaced()
    )
    alone = any(pod.constraints is not None for pod in gang.members.values())
    return gang.needed, frozenset(kinds.items()), gang.key if alone else None


def _needs(shape: Shape) -> set[Need]:
    return {kind[0] for kind, _ in shape[1]}
