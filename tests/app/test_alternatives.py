"""Turns of alternatives: each for as long as is said, and then ever more rarely."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from extender.app.cache.alternatives import Alternatives
from extender.core.policies.policy_matching import Choice
from extender.kube.names import PodUid

POD = PodUid("p")


def turns(choice: Choice, until: float) -> list[float]:
    """When the next one's turn comes, of a pod that has waited since 0."""
    waiting, found = Alternatives(), list[float]()
    waiting.waits(POD, [choice], 0.0)
    while (when := waiting.next_deadline()) is not None and when <= until:
        assert list(waiting.due(when)) == [(POD, choice.name)]
        found.append(when)
        # It is told of again all the time, which changes nothing.
        waiting.waits(POD, [choice], when)
    return found


def pauses(found: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise([0.0, *found])]


def test_in_each_round_they_are_tried_for_twice_as_long_up_to_a_minute() -> None:
    assert pauses(turns(Choice("soft", 3, 5.0), 350.0)) == [5, 5, 5, 10, 10, 10, 20, 20, 20, 40, 40, 40, 60, 60]


def test_who_says_more_than_a_minute_has_it() -> None:
    assert pauses(turns(Choice("soft", 2, 90.0), 600.0)) == [90.0] * 6


@pytest.mark.parametrize("alternatives", [1, 2, 32])
def test_a_day_of_waiting_is_no_more_than_a_turn_a_minute(alternatives: int) -> None:
    assert len(turns(Choice("soft", alternatives, 1.0), 86_400.0)) < 1440 + 7 * alternatives


def test_other_alternatives_begin_anew() -> None:
    waiting = Alternatives()
    waiting.waits(POD, [Choice("soft", 2, 5.0)], 0.0)
    for when in (5.0, 10.0, 20.0):
        list(waiting.due(when))
    waiting.waits(POD, [Choice("soft", 3, 5.0)], 21.0)
    assert waiting.next_deadline() == 26.0
    waiting.waits(POD, [], 22.0)
    assert waiting.next_deadline() is None


def test_who_is_not_taken_stays_due() -> None:
    waiting, choice = Alternatives(), Choice("soft", 2, 5.0)
    for number in range(3):
        waiting.waits(PodUid(f"p{number}"), [choice], 0.0)
    assert list(itertools.islice(waiting.due(5.0), 2)) == [("p0", "soft"), ("p1", "soft")]
    assert waiting.next_deadline() == 5.0
    assert list(waiting.due(5.0)) == [("p2", "soft")]
    assert waiting.next_deadline() == 10.0


def test_edits_of_a_pod_leave_nothing_behind() -> None:
    """Each begins anew; a tenant makes hundreds of them a second."""
    waiting = Alternatives()
    for number in range(10_000):
        waiting.waits(POD, [Choice("soft", 2 + number % 2, 60.0)], number / 1000)
    assert len(waiting._due) <= 200
    assert waiting.next_deadline() == 9.999 + 60.0
