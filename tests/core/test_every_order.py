"""The search for orders, on worlds so small that what it should find is known."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.core.every_order import TIME, Event, explore


@dataclass
class Counters:
    """Each of several counters goes up to its end, one step at a time."""

    ends: tuple[int, ...]
    at: list[int] = field(default_factory=list)
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.at = [0] * len(self.ends)

    def possible(self) -> Sequence[Event]:
        return [Event("step", str(n), f"step {n}") for n, end in enumerate(self.ends) if self.at[n] < end]

    def happen(self, event: Event) -> None:
        self.at[int(event.whom)] += 1

    def state(self) -> Hashable:
        return tuple(self.at)

    def check(self) -> None:
        assert tuple(self.at) != self.never, "there it is"

    def check_rest(self) -> None:
        assert tuple(self.at) == self.ends

    def outcome(self) -> Hashable:
        return sum(self.at)


class TestEveryOrder:
    def test_is_tried_and_each_state_once(self) -> None:
        orders = explore(Counters((2, 3, 1)))
        assert orders.states == 3 * 4 * 2
        assert orders.tried == (2 * 4 * 2) + (3 * 3 * 2) + (3 * 4 * 1)
        assert orders.outcomes == {6: 1}

    def test_finds_what_must_not_be_with_a_shortest_story(self) -> None:
        with pytest.raises(AssertionError, match="there it is") as raised:
            explore(Counters((5, 5), never=(0, 2)))
        assert raised.value.__notes__ == ["after: step 1; step 1"]

    def test_finds_what_must_not_stay(self) -> None:
        class Stuck(Counters):
            def possible(self) -> Sequence[Event]:
                return [] if self.at == [1, 1] else super().possible()

        with pytest.raises(AssertionError) as raised:
            explore(Stuck((2, 2)))
        assert raised.value.__notes__ == ["after: step 0; step 1"]


class Ring(Counters):
    """The first counter starts anew after its end; while it runs, the second may take its only step."""

    def happen(self, event: Event) -> None:
        super().happen(event)
        self.at[0] %= self.ends[0]

    def possible(self) -> Sequence[Event]:
        return [] if self.at[1] == self.ends[1] else super().possible()

    def check_rest(self) -> None:
        assert self.at[1] == self.ends[1]


class TestRest:
    def test_comes_where_only_putting_something_off_for_ever_would_go_on_for_ever(self) -> None:
        assert explore(Ring((3, 1))).states == 6

    def test_does_not_come_where_what_would_end_it_is_a_misfortune(self) -> None:
        class Unlucky(Ring):
            def possible(self) -> Sequence[Event]:
                return [event._replace(misfortune="" if event.whom == "0" else "luck") for event in super().possible()]

        with pytest.raises(AssertionError, match="may never come to rest"):
            explore(Unlucky((3, 1)))

    def test_does_not_come_where_what_would_end_it_can_happen_only_now_and_then(self) -> None:
        class Narrow(Ring):
            def possible(self) -> Sequence[Event]:
                return [event for event in super().possible() if event.whom == "0" or self.at[0] == 2]

        with pytest.raises(AssertionError, match="may never come to rest"):
            explore(Narrow((3, 1)))

    def test_has_come_where_time_changes_nothing(self) -> None:
        class Timeless(Counters):
            def possible(self) -> Sequence[Event]:
                return super().possible() or [Event(TIME, sort=TIME)]

            def happen(self, event: Event) -> None:
                if event.what != TIME:
                    super().happen(event)

        assert explore(Timeless((2,))).outcomes == {2: 1}


class TestDoubt:
    def test_finds_a_state_that_leaves_out_what_decides(self) -> None:
        class Forgetful(Counters):
            def state(self) -> Hashable:
                return sum(self.at)

        with pytest.raises(AssertionError, match="two states are taken for one"):
            explore(Forgetful((1, 2)), doubting=True)

    def test_finds_a_change_that_is_not_put_back(self) -> None:
        hidden: list[int] = []

        class Leaky(Counters):
            def happen(self, event: Event) -> None:
                super().happen(event)
                hidden.append(1)

            def state(self) -> Hashable:
                return (tuple(self.at), len(hidden))

        with pytest.raises(AssertionError, match="what has changed is not put back"):
            explore(Leaky((2,)), doubting=True)
