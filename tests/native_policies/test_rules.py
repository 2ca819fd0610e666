"""Checkers of placements: what a rule allows passes, and what it forbids does not, whoever has placed the pods."""

from __future__ import annotations

import pytest

from loadtests.native_policies import rules
from loadtests.native_policies.rules import Placement

PAIRS = {0: "a", 1: "a", 2: "b", 3: "b"}


def on(*nodes: str) -> Placement:
    return dict(enumerate(nodes))


class TestApart:
    def test_groups_may_share_a_node_and_their_members_may_not(self) -> None:
        assert rules.apart(on("x", "y", "x", "y"), PAIRS)[:2] == (True, 1)
        assert rules.apart(on("x", "x", "y", "z"), PAIRS)[:2] == (False, 2)

    def test_who_waits_breaks_nothing_and_looks_different(self) -> None:
        assert rules.apart({0: "x"}, PAIRS).held
        assert rules.apart({0: "x"}, PAIRS).shape != rules.apart(on("x", "y"), PAIRS).shape


class TestTogether:
    def test_groups_that_are_whole_and_on_one_node_count(self) -> None:
        assert rules.together(on("x", "x", "x", "x"), PAIRS)[:2] == (True, 2)
        assert rules.together(on("x", "x", "y", "z"), PAIRS)[:2] == (False, 1)

    def test_a_group_of_which_one_waits_is_not_together(self) -> None:
        assert rules.together({0: "x", 1: "x", 2: "y"}, PAIRS)[:2] == (False, 1)
        assert rules.together({0: "x", 1: "x"}, PAIRS)[:2] == (False, 1)


class TestEven:
    def test_the_emptiest_place_counts_although_nobody_is_there(self) -> None:
        assert rules.even(on("x", "y", "x"), "xy", 1)[:2] == (True, 1)
        assert rules.even(on("x", "y", "x"), "xyz", 1)[:2] == (False, 2)
        assert rules.even(on("x", "y", "z"), "xyz", 1).amount == 0

    def test_a_node_that_is_none_of_the_places_is_wrong(self) -> None:
        assert not rules.even(on("x", "elsewhere"), "xy", 1).held

    def test_no_node_may_have_more_than_its_part(self) -> None:
        assert rules.at_most(on("x", "y", "x"), 2)[:2] == (True, 2)
        assert rules.at_most(on("x", "x", "x"), 2)[:2] == (False, 3)


class TestNodes:
    def test_one_node_more_than_needed_is_not_packed(self) -> None:
        assert rules.packed(on("x", "x", "y"), 2)[:2] == (True, 2)
        assert rules.packed(on("x", "y", "z"), 2)[:2] == (False, 3)

    def test_each_pod_has_to_be_where_it_wants_to_be(self) -> None:
        wanted = {0: ["x"], 1: ["y", "z"]}
        assert rules.near(on("x", "z"), wanted)[:2] == (True, 2)
        assert rules.near(on("x", "x"), wanted)[:2] == (False, 1)
        assert rules.near({0: "x"}, wanted)[:2] == (False, 1)

    def test_the_best_is_had_when_no_better_node_has_room(self) -> None:
        values = {"x": 10.0, "y": 5.0, "z": 1.0}
        assert rules.best(on("x", "x", "y"), values, 2)[:2] == (True, 100)
        worse = rules.best(on("x", "y", "y"), values, 2)
        assert (worse.held, worse.amount) == (False, 80)
        assert worse.shape == "5:2 10:1"

    def test_nobody_placed_is_not_the_best(self) -> None:
        assert rules.best({}, {"x": 10.0}, 2).amount == 0


class TestWaiting:
    @pytest.mark.parametrize(
        ("bound", "held", "first"),
        [([2, 3], True, 2), ([3, 2], True, 2), ([2, 0], False, 1), ([0, 1], False, 0), ([2], False, 1)],
    )
    def test_the_urgent_ones_have_to_be_the_first(self, bound: list[int], held: bool, first: int) -> None:
        assert rules.in_order(bound, {2, 3}, 2)[:2] == (held, first)

    def test_one_more_than_there_is_room_for_is_wrong(self) -> None:
        assert not rules.in_order([2, 3, 0], {2, 3}, 2).held

    def test_so_many_run_and_all_others_wait(self) -> None:
        assert rules.limited(on("x", "y"), 2, waiting=2, others=2)[:2] == (True, 2)
        assert not rules.limited(on("x", "y"), 2, waiting=0, others=2).held
        assert not rules.limited(on("x", "y", "z"), 2, waiting=1, others=2).held


def test_shapes_know_no_names_of_nodes_and_tell_placements_apart() -> None:
    assert rules.packed(on("x", "x", "y"), 2).shape == rules.packed(on("b", "a", "a"), 2).shape == "1 2"
    assert rules.apart(on("x", "y", "x", "y"), PAIRS).shape == rules.apart(on("x", "y", "z", "a"), PAIRS).shape
    assert rules.near(on("x", "y"), {0: "xy", 1: "xy"}).shape == rules.near(on("y", "y"), {0: "xy", 1: "xy"}).shape
    assert rules.near(on("x", "y"), {0: "xy", 1: "xy"}).shape != rules.near(on("x", "z"), {0: "xy", 1: "xy"}).shape
