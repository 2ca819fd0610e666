"""Shares of an allowance: turns by namespace, and a rate of which each namespace pays its own part."""

from __future__ import annotations

import pytest

from extender.core.tenancy.shares import SharedRate, Turns


def taken(turns: Turns[int], count: int) -> str:
    return " ".join(f"{found[0]}{found[1]}" for _ in range(count) if (found := turns.take()) is not None)


def test_namespaces_take_turns_and_in_each_the_first_that_came_is_first() -> None:
    turns = Turns[int]()
    for number in range(100):
        turns.add("a", number)
    turns.add("b", 0)
    turns.add("c", 0)
    turns.add("b", 1)
    assert taken(turns, 7) == "a0 b0 c0 a1 b1 a2 a3"


def test_a_namespace_that_comes_again_at_once_has_its_turn_after_the_others() -> None:
    turns = Turns[int]()
    turns.add("a", 0)
    turns.add("b", 0)
    assert taken(turns, 1) == "a0"
    turns.add("a", 1)
    assert taken(turns, 3) == "b0 a1"
    assert not turns


def test_a_namespace_that_may_not_be_served_keeps_its_turn() -> None:
    turns = Turns[int]()
    for namespace in "abc":
        turns.add(namespace, 0)
    assert turns.take(lambda namespace: namespace == "b") == ("b", 0)
    assert turns.take(lambda namespace: namespace == "b") is None
    assert (taken(turns, 2), turns.count("a")) == ("a0 c0", 0)


def test_one_namespace_has_the_whole_rate() -> None:
    rate = SharedRate(5.0)
    assert rate.wait("a", 0.0) == 0
    rate.spend("a", 10, 0.0)
    assert rate.wait("a", 0.0) == pytest.approx(2)
    assert rate.wait("a", 1.5) == pytest.approx(0.5)
    assert rate.wait("a", 2.0) == 0


@pytest.mark.parametrize("spent", [10, 1_000_000])
def test_a_namespace_does_not_wait_for_what_another_one_has_spent(spent: int) -> None:
    rate = SharedRate(5.0)
    rate.spend("a", spent, 0.0)
    assert rate.wait("b", 0.0) == 0
    rate.spend("b", 5, 0.0)
    assert rate.wait("b", 0.0) == pytest.approx(2), "half of the rate is paid for it"
    assert rate.wait("b", 2.0) == 0


def test_all_that_is_spent_is_paid_for() -> None:
    """However many namespaces spend it: else some could have it for nothing."""
    rate = SharedRate(5.0)
    for count, namespace in enumerate("abcd", 1):
        rate.spend(namespace, 5 * count, 0.0)
    assert rate.wait("d", 0.0) == pytest.approx(10)
    assert rate.wait("d", 9.0) == pytest.approx(1)
    assert all(rate.wait(namespace, 10.0) == 0 for namespace in "abcd")


def test_what_is_given_back_was_never_spent() -> None:
    rate = SharedRate(5.0)
    rate.spend("a", 10, 0.0)
    rate.give_back("a", 9, 0.0)
    assert rate.wait("a", 0.0) == pytest.approx(0.2)
    rate.give_back("a", 100, 0.0)
    rate.spend("a", 5, 0.0)
    assert rate.wait("a", 0.0) == pytest.approx(1), "nobody has more than nothing owed"
