"""How often a need fits, against its slow twin: one copy after the other is taken from what is free."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.fit import fit
from extender.core.fit.fit import NOTHING, asked_of, copies, lacking, need_of, part, times
from extender.kube.names import CPU, MEMORY, PODS, ResourceKey
from extender.kube.quantities import Vector

NAMES = [CPU, MEMORY, PODS, ResourceKey("escher.dev/team.a")]
vectors = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 40), max_size=4)
changes = st.none() | st.dictionaries(st.sampled_from(NAMES), st.integers(-20, 20), max_size=4)


def free(capacity: Vector, held: Vector, change: Vector | None) -> dict[ResourceKey, int]:
    return {name: capacity.get(name, 0) - held.get(name, 0) + (change or {}).get(name, 0) for name in NAMES}


def one_by_one(left: dict[ResourceKey, int], requests: Vector, most: int) -> int:
    taken = 0
    while taken < most and all(left[name] >= units for name, units in requests.items() if units):
        for name, units in requests.items():
            left[name] -= units
        taken += 1
    return taken


@given(vectors, vectors, vectors, changes, st.integers(0, 12))
def test_as_many_copies_fit_as_can_be_taken_one_by_one(
    capacity: Vector, held: Vector, requests: Vector, change: Vector | None, most: int
) -> None:
    expected = one_by_one(free(capacity, held, change), requests, most)
    assert copies(capacity, held, need_of(requests), change, most) == expected
    assert copies(capacity, held, asked_of(requests), change, most) == expected


@given(vectors, vectors, vectors, changes)
def test_nothing_is_lacking_where_one_copy_fits(
    capacity: Vector, held: Vector, requests: Vector, change: Vector | None
) -> None:
    left = free(capacity, held, change)
    short = [name for name, units in requests.items() if units and units > left[name]]
    found = lacking(capacity, held, requests.items(), change)
    assert found == ((short[0], requests[short[0]], left[short[0]]) if short else None)
    assert (found is None) == (copies(capacity, held, need_of(requests), change) > 0)


@given(vectors, vectors, vectors, changes)
def test_parts_and_times_are_of_the_scarcest(
    capacity: Vector, held: Vector, requests: Vector, change: Vector | None
) -> None:
    left, asked = free(capacity, held, change), asked_of(requests)
    scarcest = min((Fraction(left[name], units) for name, units in asked), default=None)
    assert times(capacity, held, asked, change) == (inf if scarcest is None else float(scarcest))
    held_back, share = part(capacity, held, asked, change)
    assert held_back == {name: max(0, min(units, left[name])) for name, units in asked}
    assert share == (1.0 if scarcest is None else float(max(Fraction(0), min(Fraction(1), scarcest))))


def test_where_nothing_is_asked_for_everything_fits() -> None:
    assert copies(NOTHING, NOTHING, need_of({})) == fit.LARGEST
    assert copies(NOTHING, NOTHING, (), most=3) == 3
    assert lacking({}, {CPU: 4}, {CPU: 0}.items()) is None


@pytest.mark.parametrize("units", [2**62, 2**63 - 1])
def test_large_numbers_are_counted_exactly(units: int) -> None:
    assert copies({MEMORY: units}, {MEMORY: 1}, need_of({MEMORY: units}), most=5) == 0
    assert copies({MEMORY: units}, NOTHING, need_of({MEMORY: units}), most=5) == 1
