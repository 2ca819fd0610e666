"""How long a gang is left alone whose plans kube-scheduler will not have."""

from __future__ import annotations

from extender.core.gangs.queue.plan_store import FIRST_PAUSE, FREE, LONGEST_PAUSE, Replans
from extender.core.gangs.state.gang import Gang
from extender.core.names import GangKey
from tests.builders import NOW


def gang() -> Gang:
    return Gang(GangKey("default", "train"), 2, 4.0, NOW)


def failed(replans: Replans, one: Gang, times: int, nodes: int = 3) -> list[float | None]:
    found = [replans.failed(one, nodes, NOW) for _ in range(times)]
    return [None if until is None else until - NOW for until in found]


def test_a_few_in_a_row_cost_nothing_then_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    replans, one = Replans(), gang()
    pauses = failed(replans, one, FREE + 10)
    assert pauses[:FREE] == [None] * FREE
    assert pauses[FREE : FREE + 3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE


def test_the_pause_ends_in_time_or_when_its_members_or_the_number_of_nodes_change() -> None:
    replans, one = Replans(), gang()
    assert not replans.pauses(one, 3, NOW)
    failed(replans, one, FREE + 1)
    assert replans.pauses(one, 3, NOW + FIRST_PAUSE - 0.1)
    assert not replans.pauses(one, 3, NOW + FIRST_PAUSE)
    assert not replans.pauses(one, 4, NOW)
    one.roster.changes += 1
    assert not replans.pauses(one, 3, NOW)


def test_after_a_change_it_begins_anew() -> None:
    replans, one = Replans(), gang()
    failed(replans, one, FREE + 5)
    one.roster.changes += 1
    assert failed(replans, one, FREE + 1) == [None] * FREE + [FIRST_PAUSE]
    assert failed(replans, one, 1, nodes=4) == [None]


def test_one_that_was_bound_is_forgotten() -> None:
    replans, one = Replans(), gang()
    failed(replans, one, FREE + 1)
    replans.forget(one)
    replans.forget(one)
    assert not replans.pauses(one, 3, NOW)
    assert failed(replans, one, 1) == [None]
