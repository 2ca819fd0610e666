"""Pods that were turned away: those that are alike are judged as one, and each is woken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.app.turned_away import TurnedAway
from extender.app.waking import Waking
from extender.core.cluster import Pod
from extender.core.ledger import Ledger
from extender.kube.names import NodeName
from tests.builders import gang_pods, ledger_of, pod

N0 = NodeName("n0")


class Rule:
    """`passes`: the pods of these names may go to any node. `asked`: whom it was asked about."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, pod: Pod) -> Callable[[NodeName], bool]:
        self.asked.append(pod.name)
        return lambda node: pod.name in self.names


@pytest.fixture
def ledger() -> Ledger:
    return ledger_of({"n0": {"cpu": 8000, "pods": 110}})


def woken(away: TurnedAway, rule: Rule) -> list[str]:
    waking = Waking(away, rule, [N0], lambda pods: ())
    waking.gained([N0])
    return [each.name for each in waking.go_on()]


def test_who_is_woken_is_woken_once_and_with_all_that_are_alike(ledger: Ledger) -> None:
    rule = Rule("a")
    away = TurnedAway(ledger)
    pods = [pod(name) for name in "abc"]
    for each in pods:
        away.add(each)
    assert woken(away, rule) == ["a", "b", "c"]
    assert rule.asked == ["a"]
    assert not any(each.uid in away for each in pods)
    assert woken(away, rule) == []


def test_who_is_dropped_is_not_woken(ledger: Ledger) -> None:
    rule = Rule("a", "b")
    away = TurnedAway(ledger)
    one, other = pod("a"), pod("b")
    away.add(one)
    away.add(other)
    away.drop(one.uid)
    away.drop(one.uid)
    assert one.uid not in away
    assert woken(away, rule) == ["b"]


def test_members_of_different_gangs_are_not_alike(ledger: Ledger) -> None:
    """What is held for one gang only its own members may use."""
    rule = Rule("b-0")
    away = TurnedAway(ledger)
    [a], [b] = gang_pods("a", 1), gang_pods("b", 1)
    away.add(a)
    away.add(b)
    assert woken(away, rule) == ["b-0"]


def test_one_that_has_room_of_its_own_is_like_no_other(ledger: Ledger) -> None:
    rule = Rule("b")
    away = TurnedAway(ledger)
    holder = pod("b")
    ledger.assume(holder.uid, on=N0, units=holder.requests, until=1.0)
    away.add(pod("a"))
    away.add(holder)
    assert woken(away, rule) == ["b"]


def test_one_that_has_changed_is_judged_as_it_is_now(ledger: Ledger) -> None:
    rule = Rule("b")
    away = TurnedAway(ledger)
    away.add(pod("a"))
    away.add(pod("b"))
    away.add(pod("b", {"cpu": 2000}))
    assert woken(away, rule) == ["b"]


def test_all_of_a_namespace_are_woken_at_once_and_no_others(ledger: Ledger) -> None:
    away = TurnedAway(ledger)
    away.add(pod("a", namespace="lab"))
    away.add(pod("b"))
    assert [each.name for each in away.woken_in(lambda namespace: namespace == "lab")] == ["a"]
    assert [each.name for each in away.woken_in(lambda namespace: True)] == ["b"]
