"""Whether a gang could ever fit: into the cluster without those who may leave it. Kept, so that a change of one node is
counted for that node alone.

For each kind of pods that a gang waits with it is kept how often they would fit on each node. Too few of a kind decides
at once; else the whole quorum is tried, and tried again only when one of those numbers has changed. Knows nodes and
what stays on them; must not know whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from extender.core.audit import Violation
from extender.core.copies import Copies, copies_beside
from extender.core.gang import Gang
from extender.core.kinds import PodKind
from extender.core.ledger import Ledger
from extender.core.names import GangKey, NodeName
from extender.core.units import Vector
from extender.core.work import Work

Shape = tuple[int, frozenset[tuple[PodKind, int]], GangKey | None]
"""How many members a gang needs placed, and how many it has of each kind: of one shape, all fit or none does. A gang
whose members require something of the pods around has a shape of its own."""
Rank = int | None
"""Gangs that may preempt pods below that priority; None: those that may preempt none."""
_NOTHING: Vector = {}


class Stays(Protocol):
    """What does not leave the nodes."""

    def on(self, node: NodeName, priority: Rank) -> Vector:
        """What stays on the node, whoever of that rank waits."""
        ...

    def drain_changes(self) -> Collection[NodeName]:
        """The nodes of which that has changed since the last call."""
        ...


class NothingStays:
    def on(self, node: NodeName, priority: Rank) -> Vector:
        return _NOTHING

    def drain_changes(self) -> Collection[NodeName]:
        return ()


@dataclass(slots=True)
class _Answer:
    kinds: list[tuple[tuple[PodKind, Rank], int]]
    versions: list[int] | None = None
    """Of the counts that it was given by."""
    could_fit: bool = False


class CouldFit:
    """`tries`: whether the gang's whole quorum would fit so. `accepts`: whether the node would have pods of a kind."""

    def __init__(
        self,
        ledger: Ledger,
        tries: Callable[[Gang], bool],
        accepts: Callable[[NodeName, PodKind], bool],
        stays: Stays,
        work: Work,
    ) -> None:
        self.changes = 0
        """Grows whenever an answer may be another."""
        self.unsure = False
        """Whether an answer was given that is older than what has changed, for the slice of work was over."""
        self._ledger = ledger
        self._tries = tries
        self._accepts = accepts
        self._stays = stays
        self._work = work
        self._copies: Copies[tuple[PodKind, Rank]] = Copies(ledger.rows, self._count)
        self._answers: dict[Shape, dict[Rank, _Answer]] = {}

    def _count(self, node: NodeName, kind: tuple[PodKind, Rank]) -> int:
        row = self._ledger.rows.get(node)
        if row is None or not row.present:
            return 0
        count = copies_beside(row.capacity, self._stays.on(node, kind[1]), kind[0].need)
        return count if count and self._accepts(node, kind[0]) else 0

    def refresh(self) -> None:
        """What is answered from now on is of this moment. O(nodes whose capacity has changed x kinds)."""
        nodes = dict.fromkeys((*self._ledger.drain_capacity_changes(), *self._stays.drain_changes()))
        if nodes:
            self.changes += 1
            self._work.take(self._copies.refresh(nodes))

    def resume(self) -> None:
        """A new slice of work begins: what was answered for want of it may be asked again."""
        if self.unsure:
            self.unsure = False
            self.changes += 1

    def __call__(self, gang: Gang, shape: Shape, rank: Rank) -> bool:
        answer = self._answer_for(shape, rank)
        if answer is None:
            self.unsure = True
            return False
        copies = self._copies
        versions = [copies.version(kind) for kind, _ in answer.kinds]
        if versions == answer.versions:
            return answer.could_fit
        if sum(min(count, copies.total(kind)) for kind, count in answer.kinds) < shape[0]:
            answer.could_fit = False
        elif self._work.is_over:
            self.unsure = True
            return answer.could_fit
        else:
            self._work.take(len(self._ledger.rows) * len(answer.kinds))
            answer.could_fit = self._tries(gang)
        answer.versions = versions
        return answer.could_fit

    def _answer_for(self, shape: Shape, rank: Rank) -> _Answer | None:
        """None: it is not known yet, for the slice of work is over."""
        answers = self._answers.setdefault(shape, {})
        if rank not in answers:
            kinds = [((kind, rank), count) for kind, count in shape[1]]
            new = [kind for kind, _ in kinds if kind not in self._copies]
            if new and self._work.is_over:
                return None
            self._work.take(len(self._ledger.rows) * len(new))
            for kind, _ in kinds:
                self._copies.follow(kind)
            answers[rank] = _Answer(kinds)
        return answers[rank]

    def forget(self, shape: Shape) -> None:
        """Nobody of that shape waits any more."""
        for answer in self._answers.pop(shape, {}).values():
            for kind, _ in answer.kinds:
                self._copies.leave(kind)

    def violations(self) -> Iterator[Violation]:
        self.refresh()
        yield from self._copies.violations()

    @property
    def shapes(self) -> AbstractSet[Shape]:
        """What it is kept for."""
        return self._answers.keys()
