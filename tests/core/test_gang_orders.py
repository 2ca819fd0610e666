"""Two small gangs that compete: every order of their filter, bind, delete and watch events is tried, none is drawn.

In each state the invariants hold. In each in which nothing is left to happen, a gang is bound as a whole or not at all,
nothing is reserved, no call waits for its answer, and nobody waits who would fit. `pytest -rP` tells how many they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from extender.app.contracts.effects import Effect
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import TurnBack, WakePod
from tests.core.every_order import Orders, explore
from tests.core.gang_orders import Rivals, contention

pytestmark = pytest.mark.timeout(900)

TWO = {"a": 2, "b": 2}
TWO_AND_THREE = {"a": 2, "b": 3}
ONE_AND_A_HALF = {"n1": 3}
ON_TWO_NODES = {"n1": 2, "n2": 1}
IMPATIENT = BackfillTrigger(bypasses=1, seconds=8)

ONE_OF_THEM = {(2, 0), (0, 2)}
AND_WHO_IS_LEFT = {(2, 1), (1, 2)}
"""A gang that ran and lost a member, beside one that took the room."""


def every_order(world: Rivals, *, at_least: int, doubting: bool = False) -> Orders:
    orders = explore(world, doubting=doubting)
    sys.stdout.write(f"{orders}\n")
    found = orders.states
    assert found >= at_least
    return orders


class TestWithoutMisfortunes:
    def test_two_gangs_for_which_there_is_room_are_both_bound(self) -> None:
        orders = every_order(contention(TWO, {"n1": 4}), at_least=1_500)
        assert orders.outcomes.keys() == {(2, 2)}

    @pytest.mark.longer
    def test_of_two_gangs_with_room_for_one_and_a_half_one_is_bound(self) -> None:
        orders = every_order(contention(TWO, ONE_AND_A_HALF), at_least=1_000)
        assert orders.outcomes.keys() == ONE_OF_THEM

    def test_of_a_smaller_and_a_larger_one_either_is_bound(self) -> None:
        orders = every_order(contention(TWO_AND_THREE, {"n1": 2, "n2": 2}, seen=True, alike=False), at_least=600)
        assert orders.outcomes.keys() == {(2, 0), (0, 3)}

    def test_a_smaller_and_a_larger_one_on_several_nodes_are_both_bound(self) -> None:
        orders = every_order(contention(TWO_AND_THREE, {"n1": 2, "n2": 2, "n3": 1}, seen=True), at_least=400)
        assert orders.outcomes.keys() == {(2, 3)}


class TestWithMisfortunes:
    @pytest.mark.longer
    def test_a_member_is_deleted_at_any_moment(self) -> None:
        orders = every_order(contention(TWO, ONE_AND_A_HALF, {"delete": 1}, seen=True, alike=False), at_least=2_500)
        assert orders.outcomes.keys() == ONE_OF_THEM | AND_WHO_IS_LEFT

    @pytest.mark.longer
    def test_a_member_is_deleted_and_recreated_with_another_uid(self) -> None:
        orders = every_order(
            contention(TWO, ONE_AND_A_HALF, {"delete": 1, "recreate": 1}, seen=True, mortal="a"), at_least=5_000
        )
        assert orders.outcomes.keys() == ONE_OF_THEM | {(1, 2)}

    def test_a_binding_is_refused_and_a_pod_lost_between_filter_and_bind(self) -> None:
        orders = every_order(
            contention(TWO, ON_TWO_NODES, {"refuse": 1, "lose": 1}, seen=True, alike=False), at_least=1_500
        )
        assert orders.outcomes.keys() == ONE_OF_THEM

    @pytest.mark.longer
    def test_a_deadline_passes_at_any_moment(self) -> None:
        orders = every_order(contention(TWO, ONE_AND_A_HALF, {"hurry": 1}, seen=True, alike=False), at_least=1_000)
        assert orders.outcomes.keys() == ONE_OF_THEM

    def test_kube_scheduler_tries_pods_that_nobody_has_woken(self) -> None:
        orders = every_order(contention(TWO, ON_TWO_NODES, {"retry": 2}, seen=True, alike=False), at_least=600)
        assert orders.outcomes.keys() == ONE_OF_THEM

    @pytest.mark.longer
    def test_kube_scheduler_tries_a_pod_that_is_deleted(self) -> None:
        world = contention(TWO, ONE_AND_A_HALF, {"delete": 1, "late": 1}, seen=True, mortal="a")
        assert every_order(world, at_least=1_000).outcomes.keys() == ONE_OF_THEM | {(1, 2)}

    @pytest.mark.longer
    def test_room_is_saved_for_the_one_that_has_waited_long(self) -> None:
        world = contention(TWO, ONE_AND_A_HALF, {"delete": 1}, seen=True, alike=False, patience=IMPATIENT)
        assert every_order(world, at_least=2_500).outcomes.keys() == ONE_OF_THEM | AND_WHO_IS_LEFT


class TestOptimistic:
    """Nothing is reserved at filter: both may be on their way to the same room."""

    @pytest.mark.longer
    def test_two_gangs_for_which_there_is_room_are_both_bound(self) -> None:
        orders = every_order(contention(TWO, {"n1": 4}, reserve_at_filter=False), at_least=1_500)
        assert orders.outcomes.keys() == {(2, 2)}

    @pytest.mark.longer
    def test_of_a_smaller_and_a_larger_one_either_is_bound(self) -> None:
        world = contention(TWO_AND_THREE, {"n1": 2, "n2": 2}, seen=True, alike=False, reserve_at_filter=False)
        assert every_order(world, at_least=1_500).outcomes.keys() == {(2, 0), (0, 3)}

    @pytest.mark.parametrize(
        ("misfortunes", "outcomes"),
        [
            pytest.param({"delete": 1}, ONE_OF_THEM | AND_WHO_IS_LEFT, marks=pytest.mark.longer),
            pytest.param({"hurry": 1}, ONE_OF_THEM, marks=pytest.mark.longer),
            ({"retry": 2}, ONE_OF_THEM),
        ],
        ids=str,
    )
    def test_misfortunes(self, misfortunes: dict[str, int], outcomes: set[tuple[int, ...]]) -> None:
        world = contention(TWO, ONE_AND_A_HALF, misfortunes, seen=True, alike=False, reserve_at_filter=False)
        assert every_order(world, at_least=300).outcomes.keys() == outcomes


class TestBehindTheGate:
    """kube-scheduler does not look at members before their gang has its plan."""

    @pytest.mark.longer
    def test_two_gangs_for_which_there_is_room_are_both_bound(self) -> None:
        orders = every_order(contention(TWO, {"n1": 4}, gated="ab"), at_least=1_000)
        assert orders.outcomes.keys() == {(2, 2)}

    @pytest.mark.parametrize(
        ("gated", "misfortunes", "outcomes"),
        [
            ("ab", {}, ONE_OF_THEM),
            ("a", {}, ONE_OF_THEM),
            pytest.param("ab", {"delete": 1}, ONE_OF_THEM | AND_WHO_IS_LEFT, marks=pytest.mark.longer),
            ("ab", {"refuse": 1, "lose": 1}, ONE_OF_THEM),
            pytest.param("a", {"refuse": 1, "lose": 1}, ONE_OF_THEM, marks=pytest.mark.longer),
            pytest.param("a", {"retry": 2}, ONE_OF_THEM, marks=pytest.mark.longer),
        ],
        ids=str,
    )
    def test_of_two_gangs_with_room_for_one_and_a_half_one_is_bound(
        self, gated: str, misfortunes: dict[str, int], outcomes: set[tuple[int, ...]]
    ) -> None:
        world = contention(TWO, ONE_AND_A_HALF, misfortunes, gated=gated)
        assert every_order(world, at_least=200).outcomes.keys() == outcomes


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestMoreOfIt:
    """The same: from before the watch has told of anybody, without taking members for alike, with more misfortunes."""

    @pytest.mark.parametrize(
        ("gangs", "nodes", "at_least"),
        [(TWO, {"n1": 2, "n2": 2}, 16_000), (TWO, ON_TWO_NODES, 8_000), (TWO_AND_THREE, {"n1": 4}, 15_000)],
        ids=["room for both", "room for one and a half", "two and three"],
    )
    def test_without_misfortunes(self, gangs: dict[str, int], nodes: dict[str, int], at_least: int) -> None:
        every_order(contention(gangs, nodes, alike=False), at_least=at_least)

    @pytest.mark.parametrize("misfortunes", [{"delete": 1}, {"refuse": 1}, {"lose": 1}, {"hurry": 1}], ids=str)
    def test_from_before_the_watch_has_told(self, misfortunes: dict[str, int]) -> None:
        every_order(contention(TWO, ON_TWO_NODES, misfortunes), at_least=5_000)

    def test_a_member_is_recreated_from_before_the_watch_has_told(self) -> None:
        every_order(contention(TWO, ONE_AND_A_HALF, {"delete": 1, "recreate": 1}, mortal="a"), at_least=40_000)

    @pytest.mark.parametrize(
        "misfortunes",
        [
            {"delete": 1, "hurry": 1},
            {"delete": 2, "refuse": 1},
            {"delete": 1, "refuse": 1, "lose": 1},
            {"delete": 1, "recreate": 1, "refuse": 1},
            {"delete": 1, "recreate": 1, "lose": 1},
            {"delete": 1, "recreate": 1, "retry": 1},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("reserve_at_filter", [True, False], ids=["pessimistic", "optimistic"])
    def test_several_misfortunes(self, misfortunes: dict[str, int], reserve_at_filter: bool) -> None:
        world = contention(TWO, ONE_AND_A_HALF, misfortunes, seen=True, reserve_at_filter=reserve_at_filter)
        every_order(world, at_least=5_000)

    @pytest.mark.parametrize("gated", ["ab", "a", "b"])
    @pytest.mark.parametrize("misfortunes", [{"delete": 1, "recreate": 1}, {"hurry": 1}], ids=str)
    def test_behind_the_gate(self, gated: str, misfortunes: dict[str, int]) -> None:
        every_order(contention(TWO, ONE_AND_A_HALF, misfortunes, gated=gated), at_least=15_000)

    @pytest.mark.parametrize("misfortunes", [{"delete": 1}, {"delete": 1, "recreate": 1}, {"refuse": 1}], ids=str)
    def test_a_smaller_and_a_larger_gang(self, misfortunes: dict[str, int]) -> None:
        every_order(contention(TWO_AND_THREE, {"n1": 2, "n2": 2}, misfortunes, seen=True), at_least=1_000)

    @pytest.mark.parametrize("misfortunes", [{"delete": 1, "recreate": 1}, {"hurry": 2}, {"refuse": 1}], ids=str)
    def test_room_is_saved(self, misfortunes: dict[str, int]) -> None:
        every_order(contention(TWO, ON_TWO_NODES, misfortunes, seen=True, patience=IMPATIENT), at_least=500)

    @pytest.mark.parametrize(
        "misfortunes", [{"delete": 1, "refuse": 1}, {"refuse": 1, "lose": 1}, {"hurry": 1}, {"retry": 1}], ids=str
    )
    def test_no_two_states_are_taken_for_one(self, misfortunes: dict[str, int]) -> None:
        world = contention(TWO, ONE_AND_A_HALF, misfortunes, seen=True, alike=False, patience=IMPATIENT)
        every_order(world, at_least=300, doubting=True)


class TestTheSearch:
    @pytest.mark.longer
    def test_takes_no_two_states_for_one(self) -> None:
        world = contention(TWO, ONE_AND_A_HALF, {"delete": 1}, seen=True, alike=False, mortal="a")
        every_order(world, at_least=1_000, doubting=True)

    def test_finds_that_a_wake_is_lost(self) -> None:
        class Deaf(Rivals):
            def take(self, effects: Sequence[Effect]) -> None:
                super().take([effect for effect in effects if not isinstance(effect, WakePod)])

        with pytest.raises(AssertionError, match="fits and waits"):
            explore(contention(TWO, ONE_AND_A_HALF, {"delete": 1}, kind=Deaf, seen=True))

    def test_finds_that_a_bind_is_never_answered(self) -> None:
        class Mute(Rivals):
            def take(self, effects: Sequence[Effect]) -> None:
                super().take([effect for effect in effects if not isinstance(effect, TurnBack)])

        with pytest.raises(AssertionError, match="a bind call hangs"):
            explore(contention(TWO, ONE_AND_A_HALF, {"hurry": 1}, kind=Mute, seen=True))
