"""Core costs: each figure is of what it says, on a cluster small enough for a test; what it is, is not looked at."""

from __future__ import annotations

import gc

import pytest

from loadtests.goals import core_costs
from loadtests.goals.measuring import in_process

SMALL = {
    "NODES": 200,
    "PODS_HELD": 800,
    "PODS_WATCHED": 100,
    "MEMBERS": 16,
    "LARGE": 24,
    "SENT": 30,
    "WAITING": 4,
    "SHAPES": 2,
    "FEW": 10,
    "MANY": 40,
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in SMALL.items():
        monkeypatch.setattr(core_costs, name, number)


@pytest.mark.longer
def test_each_row_is_measured_on_what_it_speaks_of_and_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold(), bool(gc.get_freeze_count())
    found = list(core_costs.measures(rounds=2))
    assert [each.row for each in found] == list(core_costs.ROWS)
    assert all(each.low <= each.now <= each.high and each.samples == 2 for each in found)
    assert (gc.get_threshold(), bool(gc.get_freeze_count())) == before


def test_only_what_is_asked_for_is_measured() -> None:
    assert [each.row for each in core_costs.measures(rounds=1, only="growth")] == [core_costs.GROWTH]


def test_a_gang_that_fits_where_it_should_not_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "ON_NODE", 64_000)
    with pytest.raises(AssertionError, match="otherwise than was meant"):
        list(core_costs.measures(rounds=1, only="gang planned"))
