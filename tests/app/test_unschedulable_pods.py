"""Pods that were turned away: those that are alike are judged as one, and each is woken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.app.cache.unschedulable_pods import Group, UnschedulablePods
from extender.app.wake_search import WakeSearch
from extender.core.cluster import Pod
from extender.core.common.work_budget import Work
from extender.core.ledger.ledger import Ledger
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted, Isolation
from extender.kube.names import NodeName
from tests.builders import gang_pods, ledger_of, pod

N0 = NodeName("n0")


class Rule:
    """`passes`: the pods of these names may go to any node. `asked`: whom it was asked about."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[str] = []

    def passes(self, pod: Pod) -> Callable[[NodeName], bool]:
        self.asked.append(pod.name)
        return lambda node: pod.name in self.names

    def with_room(self, pod: Pod, work: Work) -> list[NodeName]:
        return [N0]

    def alike(self, pod: Pod) -> None:
        return None

    def refuses_alike(self, pod: Pod) -> Callable[[NodeName], bool]:
        raise AssertionError("nobody is alike")


@pytest.fixture
def ledger() -> Ledger:
    return ledger_of({"n0": {"cpu": 8000, "pods": 110}})


def woken(away: UnschedulablePods, rule: Rule) -> list[str]:
    waking = WakeSearch(away, rule, [N0], lambda pods: ())
    waking.gained([N0])
    return [each.name for each in waking.go_on()]


def test_who_is_woken_is_woken_once_and_with_all_that_are_alike(ledger: Ledger) -> None:
    rule = Rule("a")
    away = UnschedulablePods(ledger, Isolation())
    pods = [pod(name) for name in "abc"]
    for each in pods:
        away.add(each)
    assert woken(away, rule) == ["a", "b", "c"]
    assert rule.asked == ["a"]
    assert not any(each.uid in away for each in pods)
    assert woken(away, rule) == []


def test_who_is_dropped_is_not_woken(ledger: Ledger) -> None:
    rule = Rule("a", "b")
    away = UnschedulablePods(ledger, Isolation())
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
    away = UnschedulablePods(ledger, Isolation())
    [a], [b] = gang_pods("a", 1), gang_pods("b", 1)
    away.add(a)
    away.add(b)
    assert woken(away, rule) == ["b-0"]


def test_one_that_has_room_of_its_own_is_like_no_other(ledger: Ledger) -> None:
    rule = Rule("b")
    away = UnschedulablePods(ledger, Isolation())
    holder = pod("b")
    ledger.assume(holder.uid, on=N0, units=holder.requests, until=1.0)
    away.add(pod("a"))
    away.add(holder)
    assert woken(away, rule) == ["b"]


def test_one_that_has_changed_is_judged_as_it_is_now(ledger: Ledger) -> None:
    rule = Rule("b")
    away = UnschedulablePods(ledger, Isolation())
    away.add(pod("a"))
    away.add(pod("b"))
    away.add(pod("b", {"cpu": 2000}))
    assert woken(away, rule) == ["b"]


def test_all_of_a_namespace_are_woken_at_once_and_no_others(ledger: Ledger) -> None:
    away = UnschedulablePods(ledger, Isolation())
    away.add(pod("a", namespace="lab"))
    away.add(pod("b"))
    assert [each.name for each in away.woken_in(lambda namespace: namespace == "lab")] == ["a"]
    assert [each.name for each in away.woken_in(lambda namespace: True)] == ["b"]


# -- the quota of kinds ----------------------------------------------------------------------------------------------


def allowed(kinds: int | None) -> Allowance:
    return UNLIMITED if kinds is None else Allowance({Counted.WAITING_KINDS: kinds})


def looked_after(away: UnschedulablePods) -> WakeSearch:
    """Nobody could go anywhere."""
    waking = WakeSearch(away, Rule(), [N0], lambda pods: ())
    assert list(waking.go_on()) == []
    assert not waking.has_work
    return waking


def kinds(count: int, first: int = 0, **facts: str) -> list[Pod]:
    return [pod(f"p{number}", {"cpu": 100 + number}, **facts) for number in range(first, first + count)]


def test_kinds_beyond_the_quota_are_counted_and_woken_like_others(ledger: Ledger) -> None:
    away = UnschedulablePods(ledger, Isolation(allowed(2)))
    for each in (*kinds(3), pod("like-p0", {"cpu": 100}), *kinds(1, first=10, namespace="other")):
        away.add(each)
    assert (away.counted("default"), away.counted("other"), away.counted("nobody")) == ((2, 1), (1, 0), (0, 0))
    assert sorted(woken(away, Rule("p0", "p2"))) == ["like-p0", "p0", "p2"]
    assert away.counted("default") == (1, 0)


def test_a_kind_that_goes_makes_room_for_the_oldest_beyond(ledger: Ledger) -> None:
    away = UnschedulablePods(ledger, Isolation(allowed(2)))
    pods = kinds(5)
    for each in pods:
        away.add(each)
    away.drop(pods[0].uid)
    looked_after(away)
    assert away.counted("default") == (2, 2)
    assert [pod.name for alike in away.kinds(Group("default")) for pod in alike.values()] == ["p1", "p2"]
    for each in pods[1:]:
        away.drop(each.uid)
    assert away.counted("default") == (0, 0)
    assert list(away.groups()) == []


def test_one_that_changes_alone_of_its_kind_leaves_its_room_to_what_it_becomes(ledger: Ledger) -> None:
    away = UnschedulablePods(ledger, Isolation(allowed(2)))
    for each in kinds(2):
        away.add(each)
    away.add(pod("p1", {"cpu": 999}))
    assert away.counted("default") == (2, 0)


def test_a_quota_that_changes_takes_nothing_away_and_lets_in_as_many_as_it_has_room_for(ledger: Ledger) -> None:
    isolation = Isolation(allowed(2))
    away = UnschedulablePods(ledger, isolation)
    for each in kinds(6):
        away.add(each)
    for limit, counted in ((1, (2, 4)), (3, (3, 3)), (3, (3, 3)), (None, (6, 0)), (0, (6, 0))):
        isolation.set(allowed(limit), {})
        looked_after(away)
        assert away.counted("default") == counted
    away.add(*kinds(1, first=6))
    assert away.counted("default") == (6, 1)
    assert sorted(woken(away, Rule(*(f"p{number}" for number in range(7))))) == [f"p{number}" for number in range(7)]


def test_all_of_a_namespace_are_woken_at_once_those_beyond_the_quota_too(ledger: Ledger) -> None:
    away = UnschedulablePods(ledger, Isolation(allowed(1)))
    for each in kinds(4):
        away.add(each)
    assert sorted(each.name for each in away.woken_in(lambda namespace: True)) == ["p0", "p1", "p2", "p3"]
    assert list(away) == []
