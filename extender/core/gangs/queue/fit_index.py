"""The index of fits: whether a waiting gang may fit now, and whether it could ever fit.

"Ever" means without the pods that may leave. Answers are kept by shape. `Copies` counts how often each kind of pods
fits on each node, now and ever; a change of one node costs a recount of that node only. Too few of a kind decide at
once; else the whole quorum is tried. Whether it could ever fit is tried again only when a count has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from extender.core.cluster import Pod
from extender.core.common.work_budget import Work
from extender.core.fit.equivalence import MOST_KINDS, EquivalenceClass, equivalence_of, matching_of
from extender.core.fit.fit import LARGEST, MOST, NOTHING, Asked, Need, copies, lacking, need_of
from extender.core.gangs.placement.fit_counts import Copies, Least, OnEach
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.placement.slots import Slots, plannable
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.queue.plan_store import Plans
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Ledger
from extender.core.ledger.node_arrays import Accepting, Accepts, Grid, Numbers
from extender.core.ledger.node_rows import NOWHERE
from extender.core.names import GangKey
from extender.core.policies.matched_policy import is_choosy
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_A_MEMBER = 8
"""Steps of work to see that nothing has changed for a member."""
Shape = tuple[int, frozenset[tuple[EquivalenceClass, int]], GangKey | None]
"""Members to place, members of each kind, and the gang if its members have rules on pods around.

All gangs of one shape fit, or none does."""
Rank = int | None
"""The priority below which gangs may preempt pods; None: they may preempt none."""


class _Stays(Protocol):
    """Resident pods, as this module needs them."""

    def on(self, node: NodeName, priority: Rank) -> Vector:
        """Resident units on the node, for gangs of that rank."""
        ...

    def drain_changes(self) -> Collection[NodeName]:
        """The nodes where that has changed since the last call."""
        ...


@dataclass(slots=True)
class _Answer:
    kinds: list[tuple[tuple[EquivalenceClass, Rank], int]]
    versions: Hashable = None
    """Versions of the counts, or the state, on which the answer is based."""
    could_fit: bool = False
    asked_in: int = 0
    """The round in which it was last found by a try."""


class CouldFit:
    """Whether gangs could ever fit. `tries`: a whole quorum. `accepting`: which nodes allow a pod.

    `is_judged`: whether policies also keep the gang's members from nodes. `alone`: for a gang with bound members or
    rules on pods. It returns what the answer depends on, and the steps of work of all such tries so far.

    Tries are made in slices. A round is over when each gang has been tried whose answer was too old. While it lasts,
    each gang is tried once: changes without end keep no gang from its try. Answers of this round count meanwhile."""

    def __init__(
        self,
        ledger: Ledger,
        tries: Callable[[Gang], bool],
        accepting: Callable[[Pod], Accepts],
        is_judged: Callable[[Gang], bool],
        stays: _Stays,
        work: Work,
        alone: Callable[[Gang], tuple[Hashable, int]] = lambda gang: ((), 0),
    ) -> None:
        self.changes = 0
        """Grows whenever an answer may change."""
        self.unsure = False
        """Whether an answer is older than the last change, so that the next slice asks again."""
        self.capacities = 0
        """Grows whenever a node's capacity, or what stays there, has changed."""
        self._alone = alone
        self._round = 1
        self._round_goes_on = False
        """Whether the round is one of several slices."""
        self._is_incomplete = False
        """Whether a gang has no answer of this round yet."""
        self._has_tried = False
        """Whether this slice has made a try."""
        self._is_asked = False
        """Whether this slice had to say of a gang. If not, the round goes on, or it would never end."""
        self._ledger = ledger
        self._tries = tries
        self._accepting = accepting
        self._is_judged = is_judged
        self._stays = stays
        self._work = work
        self._copies: Copies[tuple[EquivalenceClass, Rank]] = Copies(
            ledger.rows, self._count, count_all=self._count_all
        )
        self._answers: dict[Shape, dict[Rank, _Answer]] = {}
        self._tried_alone: dict[GangKey, _Answer] = {}

    def _count_all(self, kinds: Sequence[tuple[EquivalenceClass, Rank]]) -> OnEach:
        """Counts for kinds of one rank."""
        rank = kinds[0][1]
        names = list(self._ledger.rows.present())
        capacity = [self._ledger.rows[name].capacity for name in names]
        staying = [self._stays.on(name, rank) for name in names]

        def empty(resource: ResourceKey) -> Iterator[int]:
            return (has.get(resource, 0) - stays.get(resource, 0) for has, stays in zip(capacity, staying, strict=True))

        grid = Grid(names, empty)
        return names, _where_accepted(
            (kind for kind, _ in kinds),
            grid.accepting,
            (grid.copies(kind.need, MOST if kind.need else LARGEST) for kind, _ in kinds),
            self._accepting,
        )

    def _count(self, node: NodeName, kind: tuple[EquivalenceClass, Rank]) -> int:
        row = self._ledger.rows.get(node)
        if row is None or not row.present:
            return 0
        count = copies(row.capacity, self._stays.on(node, kind[1]), kind[0].need)
        return count if count and self._accepting(kind[0].like)(node) else 0

    def refresh(self) -> None:
        """Brings all answers up to date. O(nodes whose capacity has changed x kinds)."""
        nodes = dict.fromkeys((*self._ledger.changes.drain_capacities(), *self._stays.drain_changes()))
        if nodes:
            self.changes += 1
            self.capacities += 1
            self._work.take(self._copies.refresh(nodes))

    def resume(self) -> None:
        """A new slice of work begins."""
        if self.unsure:
            self.unsure = False
            self.changes += 1
        if self._is_asked:
            self._round_goes_on = self._is_incomplete
            self._round += not self._is_incomplete
        self._is_incomplete = self._has_tried = self._is_asked = False

    def __call__(self, gang: Gang, shape: Shape, rank: Rank) -> bool | None:
        """None: not known in this slice."""
        answer = self._answer_for(shape, rank)
        if answer is None:
            self.unsure = self._is_incomplete = self._is_asked = True
            return None
        versions = tuple(self._copies.version(kind) for kind, _ in answer.kinds)
        if versions == answer.versions:
            return answer.could_fit
        if sum(min(count, self._copies.total(kind)) for kind, count in answer.kinds) < shape[0]:
            answer.could_fit = False
        elif len(answer.kinds) == 1 and not self._is_judged(gang):
            # All members are alike: as many as fit singly fit together.
            answer.could_fit = True
        elif not self._may_try(answer):
            return self._of_this_round(answer)
        else:
            self._work.take(len(self._ledger.rows) * len(answer.kinds))
            answer.could_fit = self._tries(gang)
        answer.versions = versions
        return answer.could_fit

    def alone(self, gang: Gang, work: int = 0) -> bool | None:
        """As a call, for one gang with bound members, or with rules on pods; `leave` forgets the answer.

        `work`: what a try costs beside the steps that `alone` of this object counts."""
        state, before = self._alone(gang)
        answer = self._tried_alone.get(gang.key)
        if answer is None:
            answer = self._tried_alone[gang.key] = _Answer([])
        if answer.versions == state:
            return answer.could_fit
        if not self._may_try(answer):
            return self._of_this_round(answer)
        answer.could_fit = self._tries(gang)
        self._work.take(_A_MEMBER * len(gang.roster.members) + work + self._alone(gang)[1] - before)
        answer.versions = state
        return answer.could_fit

    def _may_try(self, answer: _Answer) -> bool:
        self._is_asked = True
        if (self._round_goes_on and answer.asked_in == self._round) or (self._has_tried and self._work.is_over):
            return False
        self._has_tried, answer.asked_in = True, self._round
        return True

    def _of_this_round(self, answer: _Answer) -> bool | None:
        self.unsure = True
        if answer.asked_in == self._round:
            return answer.could_fit
        self._is_incomplete = True
        return None

    def _answer_for(self, shape: Shape, rank: Rank) -> _Answer | None:
        """The answer; None: not known yet, because the slice of work is over."""
        answers = self._answers.setdefault(shape, {})
        if rank not in answers:
            kinds = [((kind, rank), count) for kind, count in shape[1]]
            new = [kind for kind, _ in kinds if kind not in self._copies]
            if new and self._has_tried and self._work.is_over:
                return None
            self._has_tried = self._has_tried or bool(new)
            self._work.take(len(self._ledger.rows) * len(new))
            self._copies.follow(*(kind for kind, _ in kinds))
            answers[rank] = _Answer(kinds)
        return answers[rank]

    def forget(self, shape: Shape) -> None:
        """No gang of that shape waits any more."""
        for answer in self._answers.pop(shape, {}).values():
            self._copies.leave(*(kind for kind, _ in answer.kinds))

    def leave(self, key: GangKey) -> None:
        """The gang waits no more."""
        self._tried_alone.pop(key, None)

    def violations(self) -> Iterator[Violation]:
        self.refresh()
        yield from self._copies.violations()

    @property
    def shapes(self) -> AbstractSet[Shape]:
        """The shapes with an answer."""
        return self._answers.keys()


class Fits:
    def __init__(
        self, ledger: Ledger, places: Places, feasibility: Feasibility, slots: Slots, plans: Plans, stays: _Stays
    ) -> None:
        self.work = Work()
        least: Least[EquivalenceClass] = Least(lambda kind: kind.need, self._lacks)
        self.copies: Copies[EquivalenceClass] = Copies(ledger.rows, self._count_free, least, self._count_all_free)
        """How often pods of a kind fit into what is free."""
        self._ever = CouldFit(
            ledger, feasibility.could_ever_fit, slots.accepting, slots.is_judged, stays, self.work, self._state_alone
        )
        self._ledger = ledger
        self._places = places
        self._feasibility = feasibility
        self._slots = slots
        self.plans = plans

    def _count_free(self, node: NodeName, kind: EquivalenceClass) -> int:
        row = self._ledger.rows.get(node)
        if row is None or not row.present:
            return 0
        count = copies(row.capacity, row.held, kind.need)
        return count if count and self._slots.would_have(node, kind) else 0

    def _count_all_free(self, kinds: Sequence[EquivalenceClass]) -> OnEach:
        rows, columns = self._ledger.rows, self._ledger.columns
        names = columns.names()

        def on_each(kind: EquivalenceClass) -> Numbers:
            if (offer := columns.offer(kind.need)) is not None:
                return offer.copies
            there = map(rows.__getitem__, names)
            found = (copies(row.capacity, row.held, kind.need) if row.present else 0 for row in there)
            return np.fromiter(found, np.int64, len(names))

        return names, _where_accepted(kinds, Accepting(names), map(on_each, kinds), self._slots.accepting)

    def _lacks(self, node: NodeName, asked: Asked) -> bool:
        row = self._ledger.rows.get(node, NOWHERE)
        return lacking(row.capacity, row.held, asked) is not None

    # -- counted shapes ------------------------------------------------------------------------------------------

    def follow(self, shape: Shape) -> None:
        """Counts the kinds of the shape from now on."""
        self.refresh()
        self.copies.follow(*(kind for kind, _ in shape[1]))

    def leave(self, key: GangKey) -> None:
        """The gang waits no more."""
        self._ever.leave(key)

    def forget(self, shape: Shape) -> None:
        """No gang of that shape waits any more."""
        self._ever.forget(shape)
        self.copies.leave(*(kind for kind, _ in shape[1]))

    def refresh(self) -> None:
        """Brings all answers up to date. O(nodes that have changed x kinds of waiting pods)."""
        if changes := self._ledger.changes.drain():
            self.work.take(self.copies.refresh(changes))
        self._ever.refresh()

    def resume(self) -> None:
        """A new slice of work begins."""
        self.work.renew()
        self._ever.resume()

    def take_work(self, shape: Shape | None) -> None:
        """Charges a try of the shape: each node is looked at for each kind of its members."""
        self.work.take(len(self._ledger.rows) * (1 if shape is None else len(shape[1]) or MOST_KINDS))

    # -- now, and ever -------------------------------------------------------------------------------------------

    def anybody_gained(self, gains: Collection[NodeName]) -> bool:
        """Whether one of these nodes has room for a member of any shape."""
        return self.copies.anywhere(gains)

    def gained(self, shape: Shape, gains: Collection[NodeName]) -> bool:
        """Whether one of these nodes has room for a member."""
        return any(self.copies.on(node, kind) for kind, _ in shape[1] for node in gains)

    def may_fit(self, shape: Shape, last: Gang, saved: int = 0) -> bool:
        """False: no gang of the shape fits. `last`: its first in turn. `saved`: reserved places."""
        needed, kinds, _ = shape
        most = {kind: self.copies.total(kind) + saved for kind, _ in kinds}
        if sum(min(count, most[kind]) for kind, count in kinds) >= needed:
            return True
        others = [held for gang in self.plans.outranked_by(last.terms.claims) for held in self._places.unbound(gang)]
        if not others:
            return False
        for kind in most:
            # What is free beside a released place may make room for one more.
            most[kind] += sum(1 + copies(held.units, NOTHING, kind.need) for held in others)
        return sum(min(count, most[kind]) for kind, count in kinds) >= needed

    def places_saved(self, gang: Gang, shape: Shape, gains: Collection[NodeName] | None) -> int:
        """Usable places of the gang's backfill reservation. `gains`: nodes with gains; None: any."""
        saved = self._places.unbound(gang)
        if gains is not None and len(needs := _needs(shape)) == 1:
            # A part of a place is none, unless the rest has just come free beside it.
            saved = [held for held in saved if held.node in gains or needs <= {need_of(held.units)}]
        return len(saved)

    def could_ever(self, gang: Gang, shape: Shape, rank: Rank) -> bool | None:
        """Whether the gang would have room beside resident pods; None: not known in this slice of work."""
        if shape[2] is not None or self._places.is_constrained(gang):
            return self._ever.alone(gang)
        # Its bound members stay as well, and no other gang of the shape has these.
        work = len(self._ledger.rows) * len(shape[1])
        beside_its_own = self._ever.alone(gang, work) if gang.roster.bound else True
        return beside_its_own and self._ever(gang, shape, rank)

    def _state_alone(self, gang: Gang) -> tuple[Hashable, int]:
        state = (
            gang.roster.changes,
            self.plans.version,
            self._ever.capacities,
            self._feasibility.company_changed(alone=True),
        )
        return state, self._places.work

    @property
    def is_unsure(self) -> bool:
        """Whether the next slice of work has to ask again who could ever fit."""
        return self._ever.unsure

    def ever_changed(self, *, alone: bool) -> tuple[int, int]:
        """Changes whenever `could_ever` may; `alone`: also for shapes of a single gang."""
        self._ever.refresh()
        # This covers all inputs of `could_ever`. Otherwise room could be reserved and given back for ever.
        return self._ever.changes, self._feasibility.company_changed(alone=alone)

    def violations(self, waiting: AbstractSet[Shape]) -> Iterator[Violation]:
        """`waiting`: the shapes of waiting gangs."""
        self.refresh()
        yield from self.copies.violations()
        yield from self._ever.violations()
        if self._ever.shapes - waiting:
            yield Violation("queue", "results are kept for shapes that no waiting gang has")


def _where_accepted(
    kinds: Iterable[EquivalenceClass],
    accepting: Accepting,
    on_each: Iterable[Numbers],
    accepting_of: Callable[[Pod], Accepts],
) -> Iterator[Numbers]:
    """The given counts of each kind by node, but 0 if the node does not accept the kind."""

    def only_accepted(kind: EquivalenceClass, found: Numbers) -> Numbers:
        at = accepting(matching_of(kind.like), accepting_of(kind.like), np.flatnonzero(found))
        only = np.zeros_like(found)
        only[at] = found[at]
        return only

    return map(only_accepted, kinds, on_each)


def shape_of(gang: Gang) -> Shape:
    """What decides whether the gang fits. It has no kinds if the gang is too varied for a plan."""
    kinds = Counter(equivalence_of(pod) for pod in plannable(gang))
    alone = any(pod.constraints is not None or is_choosy(pod.governed) for pod in gang.roster.members.values())
    return gang.needed, frozenset(kinds.items()), gang.key if alone else None


def _needs(shape: Shape) -> set[Need]:
    return {kind.need for kind, _ in shape[1]}
