"""Copies: how often pods of a kind fit, kept node by node, with nothing counted that has not changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.fit import fit
from extender.core.fit.fit import Asked, Need, need_of
from extender.core.gangs.placement.fit_counts import Copies, Least
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.node_rows import NOWHERE
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.builders import gang_pods, node, units
from tests.core.gang_world import GangWorld

A, B, C = NodeName("a"), NodeName("b"), NodeName("c")


class Counted:
    """Copies of what a ledger has free, and how many counts were asked for."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.asked = 0
        self.looked_at: list[NodeName] = []
        """Whether they have what all need at least."""
        least = Least[Need](lambda need: need, self._lacks)
        self.copies = Copies[Need](self.ledger.rows, self._count, least)

    def _lacks(self, node: NodeName, asked: Asked) -> bool:
        self.looked_at.append(node)
        row = self.ledger.rows.get(node, NOWHERE)
        return fit.lacking(row.capacity, row.held, asked) is not None

    def _count(self, node: NodeName, need: Need) -> int:
        self.asked += 1
        row = self.ledger.rows.get(node)
        return 0 if row is None or not row.present else fit.copies(row.capacity, row.held, need)

    def refresh(self) -> None:
        self.copies.refresh(self.ledger.changes.drain())


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_copies_are_those_that_fit_as_the_ledger_is_now(counted: Counted) -> None:
    ledger, copies = counted.ledger, counted.copies
    need = need_of(units(cpu=2000, pods=1, memory=0))
    ledger.capacity.set_node(A, units(cpu=9000, pods=3))
    copies.follow(need)
    assert (copies.on(A, need), copies.total(need)) == (3, 3)
    ledger.capacity.set_node(B, units(cpu=4000, pods=9))
    ledger.reserve(Holder("x"), on=A, units=units(cpu=6000), owner=GangKey("n", "g"), until=9.0)
    counted.refresh()
    assert (copies.on(A, need), copies.on(B, need), copies.total(need)) == (1, 2, 3)
    ledger.capacity.remove_node(B)
    counted.refresh()
    assert (copies.total(need), list(copies.with_room(need))) == (1, [A])
    assert list(copies.violations()) == []
    copies.leave(need)
    assert need not in copies
    assert list(copies.violations()) == []


def test_copies_are_counted_as_long_as_anybody_follows_them(counted: Counted) -> None:
    ledger, copies = counted.ledger, counted.copies
    need = need_of(units(cpu=2000))
    copies.follow(need)
    copies.follow(need)
    copies.leave(need)
    ledger.capacity.set_node(A, units(cpu=4000))
    counted.refresh()
    assert copies.total(need) == 2
    copies.leave(need)
    with pytest.raises(KeyError):
        copies.total(need)


def test_no_copies_fit_where_there_is_nothing_of_a_resource_and_any_number_where_nothing_is_asked_for(
    counted: Counted,
) -> None:
    ledger, copies = counted.ledger, counted.copies
    a_device, nothing = need_of({ResourceKey("nvidia.com/gpu"): 1}), need_of({})
    ledger.capacity.set_node(A, units(cpu=4000))
    copies.follow(a_device)
    copies.follow(nothing)
    assert (copies.on(A, a_device), copies.total(a_device)) == (0, 0)
    assert copies.on(A, nothing) == 10_000
    assert copies.on(B, nothing) == 0


def test_a_change_of_one_node_is_counted_for_that_node_alone_and_tells_whom_it_concerns(counted: Counted) -> None:
    ledger, copies = counted.ledger, counted.copies
    small, large = need_of(units(cpu=1000)), need_of(units(cpu=8000))
    for name in (A, B, C):
        ledger.capacity.set_node(name, units(cpu=4000))
    ledger.changes.drain()
    copies.follow(small)
    copies.follow(large)
    before, counted.asked = (copies.version(small), copies.version(large)), 0
    ledger.capacity.set_node(B, units(cpu=5000))
    counted.refresh()
    assert counted.asked == 2
    assert copies.version(small) != before[0]
    assert copies.version(large) == before[1]


def test_a_node_that_has_too_little_for_all_kinds_is_looked_at_once_and_not_for_each(counted: Counted) -> None:
    ledger, copies = counted.ledger, counted.copies
    kinds = [need_of(units(cpu=cpu, memory=1)) for cpu in (4000, 3000, 5000)] + [need_of(units(memory=1, pods=1))]
    for kind in kinds[:3]:
        copies.follow(kind)
    ledger.capacity.set_node(A, units(cpu=2999, memory=9))
    counted.refresh()
    assert (counted.asked, counted.looked_at) == (0, [A])
    assert not copies.anywhere([A])
    ledger.capacity.set_node(A, units(cpu=3000, memory=9))
    counted.refresh()
    assert (counted.asked, copies.anywhere([A])) == (3, True)
    # Once there was room, each is counted until there is none.
    ledger.capacity.set_node(A, units(cpu=2999, memory=9))
    counted.refresh()
    assert (counted.asked, copies.anywhere([A])) == (6, False)
    # One that asks for no CPU has room where the others have none.
    copies.follow(kinds[3])
    ledger.capacity.set_node(A, units(cpu=1, memory=9, pods=1))
    counted.refresh()
    assert copies.total(kinds[3]) == 1
    copies.leave(kinds[3])
    assert not copies.anywhere([A])
    assert list(copies.violations()) == []


def test_names_of_nodes_that_are_gone_are_not_kept_for_ever(counted: Counted) -> None:
    ledger, copies = counted.ledger, counted.copies
    need = need_of(units(cpu=1000))
    copies.follow(need)
    for number in range(1000):
        ledger.capacity.set_node(NodeName(f"n{number}"), units(cpu=4000))
        counted.refresh()
        if number >= 3:
            ledger.capacity.remove_node(NodeName(f"n{number - 3}"))
            counted.refresh()
    assert copies.total(need) == 12
    assert len(copies._numbers) < 100
    assert list(copies.violations()) == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20),
    st.integers(1, 4),
    st.sets(st.integers(1, 9)),
)
def test_they_are_what_they_would_be_if_counted_anew(
    changes: list[tuple[str, int]], asked: int, others: set[int]
) -> None:
    counted = Counted()
    need = need_of(units(cpu=asked))
    for each in (need, *(need_of(units(cpu=cpu)) for cpu in others)):
        counted.copies.follow(each)
    for name, cpu in changes:
        if cpu:
            counted.ledger.capacity.set_node(NodeName(name), units(cpu=cpu))
        else:
            counted.ledger.capacity.remove_node(NodeName(name))
        counted.refresh()
        assert list(counted.copies.violations()) == []
    last: Mapping[str, int] = dict(changes)
    assert counted.copies.total(need) == sum(cpu // asked for cpu in last.values())


def test_a_node_that_went_and_came_back_is_counted_as_itself() -> None:
    world, nodes = GangWorld(), [node(f"n{number}", {"cpu": cpu}) for number, cpu in enumerate((4000, 1000, 1000))]
    for each in nodes:
        world.add_node(each)
    ledger = world.scheduler.cache.ledger
    ledger.columns.offer(((CPU, 1),))
    ledger.capacity.remove_node(nodes[0].name)
    ledger.capacity.set_node(nodes[0].name, nodes[0].allocatable)
    world.create(*gang_pods("train", 2, {"cpu": 4000}))
    world.check()
