"""Whether gangs could ever fit beside what stays: asked again only where something has changed, and in slices."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from extender.core.cluster import Pod
from extender.core.common.work_budget import Work
from extender.core.fit.equivalence import EquivalenceClass, equivalence_of
from extender.core.gangs.queue.fit_index import CouldFit, Rank, Shape
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.ledger import Ledger
from extender.core.ledger.node_arrays import Accepts
from extender.core.names import GangKey
from extender.kube.names import NodeName
from extender.kube.quantities import Vector
from tests.builders import NOW, node, pod, units

LARGE, SMALL = equivalence_of(pod(asks={"cpu": 2000})), equivalence_of(pod(asks={"cpu": 1000}))


class Place:
    """Nodes of two CPU each, and what stays on them. It tells what was tried."""

    def __init__(self, nodes: int = 2, *, limit: int = 1000, fits: bool = True) -> None:
        self.ledger = Ledger()
        self.ranked: dict[NodeName, dict[Rank, int]] = {}
        self.changed: dict[NodeName, None] = {}
        self.closed: set[NodeName] = set()
        self.work = Work(limit)
        self.fits = fits
        self.tried: list[str] = []
        self.names = [NodeName(f"n{number}") for number in range(nodes)]
        for name in self.names:
            self.ledger.capacity.set_node(name, node(has={"cpu": 2000}).allocatable)
        self.judged = True
        self.could_fit = CouldFit(self.ledger, self._try, self._accepting, lambda gang: self.judged, self, self.work)

    def _try(self, gang: Gang) -> bool:
        self.tried.append(gang.key.name)
        return self.fits

    def _accepting(self, pod: Pod) -> Accepts:
        return lambda name: name not in self.closed

    # What stays: as `staying` tells it.

    def on(self, name: NodeName, priority: Rank) -> Vector:
        return units(cpu=self.ranked.get(name, {}).get(priority, 0))

    def drain_changes(self) -> Collection[NodeName]:
        changed, self.changed = self.changed, {}
        return changed

    def stays(self, name: str, cpu: int, priority: Rank = None) -> None:
        self.ranked.setdefault(NodeName(name), {})[priority] = cpu
        self.changed[NodeName(name)] = None
        self.could_fit.refresh()

    def resize(self, name: str, cpu: int) -> None:
        self.ledger.capacity.set_node(NodeName(name), node(has={"cpu": cpu}).allocatable)
        self.could_fit.refresh()

    def ask(
        self, needed: int, *kinds: tuple[EquivalenceClass, int], rank: Rank = None, name: str = "train"
    ) -> bool | None:
        return self.could_fit(Gang(GangKey("default", name), needed, 4.0, NOW), shape(needed, *kinds), rank)


def shape(needed: int, *kinds: tuple[EquivalenceClass, int]) -> Shape:
    return needed, frozenset(kinds), None


def test_too_few_of_a_kind_decide_at_once_and_else_the_whole_quorum_is_tried() -> None:
    place = Place()
    assert not place.ask(3, (LARGE, 3))
    assert place.tried == []
    assert place.ask(2, (LARGE, 3))
    assert place.tried == ["train"]


def test_where_all_are_alike_and_only_room_and_selectors_decide_counting_them_is_enough() -> None:
    place = Place(fits=False)
    place.judged = False
    assert place.ask(2, (LARGE, 2))
    assert not place.ask(3, (LARGE, 3))
    assert not place.tried
    # Whether unlike ones fit together, counts do not say.
    assert not place.ask(2, (LARGE, 1), (SMALL, 1))
    assert place.tried


def test_no_more_of_a_kind_count_than_the_gang_has() -> None:
    place = Place(nodes=1)
    # There is room for two of the small ones, and the gang has one of them.
    assert not place.ask(2, (SMALL, 1), (equivalence_of(pod(asks={"cpu": 9000})), 1))
    assert place.ask(2, (SMALL, 1), (LARGE, 1))


def test_what_the_try_says_is_said() -> None:
    assert not Place(fits=False).ask(2, (LARGE, 2))


def test_it_is_tried_again_only_when_a_count_has_changed() -> None:
    place = Place()
    for _ in range(3):
        assert place.ask(2, (LARGE, 2))
    assert place.tried == ["train"]
    place.resize("n0", 3000)
    assert place.ask(2, (LARGE, 2))
    assert place.tried == ["train"]
    place.resize("n0", 4000)
    place.fits = False
    assert not place.ask(2, (LARGE, 2))
    assert place.tried == ["train", "train"]
    place.resize("n1", 1000)
    place.resize("n0", 2000)
    assert not place.ask(2, (LARGE, 2))
    assert len(place.tried) == 2


def test_a_change_is_told_and_heeded_when_it_is_asked_to() -> None:
    place = Place()
    place.could_fit.refresh()
    before = place.could_fit.changes
    place.could_fit.refresh()
    assert place.could_fit.changes == before
    place.resize("n0", 4000)
    assert place.could_fit.changes == before + 1
    place.stays("n0", 4000)
    assert place.could_fit.changes == before + 2


def test_who_may_preempt_has_the_room_of_those_that_stay_for_others() -> None:
    place = Place()
    place.stays("n0", 2000, None)
    assert not place.ask(2, (LARGE, 2), rank=None)
    assert place.ask(2, (LARGE, 2), rank=5)
    place.stays("n0", 0, None)
    assert place.ask(2, (LARGE, 2), rank=None)


def test_nodes_that_would_not_have_the_pods_or_are_gone_have_no_room() -> None:
    place = Place()
    place.closed.add(NodeName("n1"))
    assert not place.ask(2, (LARGE, 2))
    assert place.ask(1, (LARGE, 2))
    # Pods are still held on it: its row is kept.
    place.ledger.confirm(pod("left").uid, on=NodeName("n0"), units=units(cpu=1000))
    place.ledger.capacity.remove_node(NodeName("n0"))
    place.could_fit.refresh()
    assert not place.ask(1, (LARGE, 2))
    assert list(place.could_fit.violations()) == []


class TestASlice:
    """Of work, by nodes and kinds looked at; what is over is for the next one."""

    def test_takes_a_step_for_each_node_and_kind(self) -> None:
        place = Place(nodes=3)
        place.could_fit.refresh()
        place.work.renew()
        # Three nodes are looked at for each of two kinds, and again to try the whole quorum.
        assert place.ask(2, (LARGE, 1), (SMALL, 1))
        assert place.work.spent == 6 + 6
        # The kinds are known, and nothing has changed.
        assert place.ask(2, (LARGE, 1), (SMALL, 1))
        assert place.work.spent == 12
        # Another shape of the same kinds is only tried.
        assert place.ask(1, (LARGE, 1), (SMALL, 1))
        assert place.work.spent == 18
        # A node that has changed is counted for each of the kinds.
        place.resize("n0", 9000)
        assert place.work.spent == 20

    def test_that_is_over_leaves_kinds_that_are_new_unanswered_until_the_next(self) -> None:
        place = Place(limit=1)
        place.could_fit.refresh()
        place.work.take(1)
        changes = place.could_fit.changes
        place.could_fit.resume()
        assert place.could_fit.changes == changes
        assert not place.ask(2, (LARGE, 2))
        assert place.could_fit.unsure
        assert place.tried == []
        place.work.limit, place.work.spent = 1000, 0
        place.could_fit.resume()
        assert not place.could_fit.unsure
        assert place.could_fit.changes == changes + 1
        assert place.ask(2, (LARGE, 2))

    def test_that_is_over_keeps_the_answer_that_was_given_before(self) -> None:
        place = Place()
        assert place.ask(2, (LARGE, 2))
        place.resize("n0", 4000)
        place.fits = False
        place.work.limit = 0
        assert place.ask(2, (LARGE, 2))
        assert place.could_fit.unsure
        place.work.limit = 1000
        assert not place.ask(2, (LARGE, 2))

    def test_that_is_over_is_enough_to_see_that_too_few_fit(self) -> None:
        place = Place()
        assert place.ask(2, (LARGE, 2))
        place.work.limit = 0
        place.resize("n0", 1000)
        assert not place.ask(2, (LARGE, 2))
        assert not place.could_fit.unsure
        # Kinds that are known are no work, whatever the gang needs of them.
        assert not place.ask(5, (LARGE, 5))
        assert not place.could_fit.unsure


def test_a_shape_is_kept_until_nobody_of_it_waits() -> None:
    place = Place()
    one, other = shape(1, (LARGE, 1)), shape(2, (LARGE, 2))
    for rank in (None, 5):
        assert place.ask(1, (LARGE, 1), rank=rank)
    assert place.ask(2, (LARGE, 2))
    assert place.could_fit.shapes == {one, other}
    place.could_fit.forget(one)
    place.could_fit.forget(one)
    assert place.could_fit.shapes == {other}
    assert place.ask(2, (LARGE, 2))
    place.could_fit.forget(other)
    assert place.could_fit.shapes == set()
    place.work.renew()
    # Nothing is counted for kinds that nobody waits with.
    place.resize("n0", 4000)
    assert place.work.spent == 0


@pytest.mark.parametrize("rank", [None, 7])
def test_counts_that_differ_from_what_is_there_are_a_violation(rank: Rank) -> None:
    place = Place()
    assert place.ask(1, (LARGE, 1), rank=rank)
    assert list(place.could_fit.violations()) == []
    place.closed.add(NodeName("n0"))
    assert [each.invariant for each in place.could_fit.violations()] == ["copies"]
