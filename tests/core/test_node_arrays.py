"""Columns: what is free on all nodes, as arrays, is what it is node by node, and so is what comes of it."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from extender.core.fit import fit
from extender.core.gangs.state import bin_packing as packing
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import units

NAMES = [NodeName(f"n{number}") for number in range(4)]
GANG = GangKey("default", "train")
_AMOUNTS = st.integers(0, 5)
_VECTORS = st.fixed_dictionaries({}, optional={"cpu": _AMOUNTS, "memory": _AMOUNTS, "escher.dev/team.data": _AMOUNTS})
Act = Callable[[Ledger], object]


def _came(name: NodeName, has: dict[str, int]) -> Act:
    return lambda ledger: ledger.capacity.set_node(name, units(has))


def _went(name: NodeName) -> Act:
    return lambda ledger: ledger.capacity.remove_node(name)


def _held(name: NodeName, holder: str, asks: dict[str, int]) -> Act:
    """A fact: it counts whether or not there is room."""
    return lambda ledger: ledger.confirm(Holder(holder), on=name, units=units(asks))  # type: ignore[arg-type]


def _released(holder: str) -> Act:
    return lambda ledger: ledger.release(Holder(holder))


def _offered(name: NodeName, number: int) -> Act:
    return lambda ledger: ledger.capacity.set(name, next(iter(units({"escher.dev/team.data": 1}))), number)


_NAME, _HOLDER = st.sampled_from(NAMES), st.sampled_from(["p0", "p1", "p2"])
_ACTS: st.SearchStrategy[Act] = st.one_of(
    st.builds(_came, _NAME, _VECTORS),
    st.builds(_went, _NAME),
    st.builds(_held, _NAME, _HOLDER, _VECTORS),
    st.builds(_released, _HOLDER),
    st.builds(_offered, _NAME, _AMOUNTS),
)


def planned(ledger: Ledger, slots: list[Slot], many: int) -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "_MANY", many)
        return plan(ledger, slots, list(ledger.rows.present()), releasing=[Holder("p0")])


@given(
    st.lists(_ACTS, max_size=12),
    _VECTORS,
    st.integers(1, 6),
    st.frozensets(st.sampled_from(NAMES)),
    st.booleans(),
)
def test_arrays_say_of_all_nodes_what_is_said_of_each(
    acts: list[Act], asks: dict[str, int], size: int, refusing: frozenset[NodeName], choosy: bool
) -> None:
    ledger = Ledger()
    need = fit.asked_of(units(asks))
    for act in [None, *acts]:
        if act is not None:
            act(ledger)
        there = dict.fromkeys(ledger.rows.present())
        assert len(ledger.columns) == len(there)
        offer = ledger.columns.offer(need)
        if offer is not None:
            rows = {name: ledger.rows[name] for name in there}
            anew = {name: count for name, row in rows.items() if (count := fit.copies(row.capacity, row.held, need))}
            assert dict(offer.where()) == anew
            assert offer.total == sum(anew.values())
        slots = [
            Slot(Holder(f"s{number}"), units(asks), (lambda name: name not in refusing) if choosy else None)
            for number in range(size)
        ]
        if choosy:
            slots = [Slot(slot.holder, slot.units, slots[0].accepts) for slot in slots]
        assert planned(ledger, slots, 0) == planned(ledger, slots, 1000)


def test_of_two_things_that_as_many_nodes_lack_the_one_is_told_that_is_lacking_first() -> None:
    ledger = Ledger()
    for name, has in (("a", units(cpu=9, memory=4)), ("b", units(cpu=1, memory=9))):
        ledger.capacity.set_node(NodeName(name), has)
    slots = [Slot(Holder(f"s{number}"), units(cpu=2, memory=2)) for number in range(3)]
    [cpu, memory] = units(cpu=1, memory=1)
    for many in (0, 1000):
        assert planned(ledger, slots, many) == Shortfall(2, 3, Short(cpu, 2, 1), others=(memory,))


def test_what_is_too_much_for_an_array_is_looked_at_node_by_node() -> None:
    ledger = Ledger()
    ledger.capacity.set_node(NAMES[0], units(memory=2**63 - 1))
    assert ledger.columns.offer(fit.asked_of(units(memory=2**63))) is None
    offer = ledger.columns.offer(fit.asked_of(units(memory=2**62)))
    assert offer is not None
    assert list(offer.where()) == [(NAMES[0], 1)]


def test_nothing_is_told_of_those_that_ask_for_nothing() -> None:
    assert Ledger().columns.offer(()) is None
