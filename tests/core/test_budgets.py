"""Disruption budgets: pods that leave together are counted together, as the API server counts them one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.budgets import Budget, Budgets, Overlapping, Spent
from extender.core.cluster import Pod
from extender.kube.node_match import Requirement
from tests.builders import pod

LOW = {"app": "low"}


def of(*budgets: Budget) -> Budgets:
    made = Budgets()
    made.replace(budgets)
    return made


def pods(count: int, **facts: object) -> list[Pod]:
    return [replace(pod(f"low-{number}", labels=LOW, created=float(number)), **facts) for number in range(count)]  # type: ignore[arg-type]


def test_so_many_may_go_as_it_allows_and_not_one_more() -> None:
    budgets = of(Budget("default", "guard", 2, LOW))
    assert budgets.objection(pods(2)) is None
    assert budgets.objection(pods(3)) == Spent("default/guard", 3, 2)


def test_one_whose_status_is_about_an_older_spec_allows_nothing() -> None:
    assert of(Budget("default", "guard", 9, LOW, current=False)).objection(pods(1)) == Spent("default/guard", 1, 0)


def test_a_pod_under_two_goes_not_at_all() -> None:
    budgets = of(Budget("default", "a", 9, LOW), Budget("default", "b", 9))
    assert budgets.objection(pods(1)) == Overlapping("default/low-0", ("default/a", "default/b"))


@pytest.mark.parametrize(
    ("facts", "may"), [({"deleting": True}, True), ({"starting": True, "ready": False}, True), ({}, False)]
)
def test_who_only_starts_or_goes_anyway_is_not_counted(facts: dict[str, object], may: bool) -> None:
    assert (of(Budget("default", "guard", 0, LOW)).objection(pods(1, **facts)) is None) is may


@pytest.mark.parametrize(
    ("budget", "may"),
    [
        (Budget("default", "guard", 0, LOW, lets_unhealthy_go=True), True),
        (Budget("default", "guard", 0, LOW, healthy=2, desired=2), True),
        (Budget("default", "guard", 0, LOW, healthy=1, desired=1), True),
        (Budget("default", "guard", 0, LOW, healthy=1, desired=2), False),
        (Budget("default", "guard", 0, LOW, healthy=0, desired=0), False),
    ],
)
def test_an_unhealthy_pod_goes_where_its_policy_lets_it(budget: Budget, may: bool) -> None:
    assert (of(budget).objection(pods(1, ready=False)) is None) is may


@pytest.mark.parametrize(
    ("requirement", "selects"),
    [
        (Requirement("app", "In", ("low", "high")), True),
        (Requirement("app", "NotIn", ("low",)), False),
        (Requirement("app", "Exists"), True),
        (Requirement("app", "DoesNotExist"), False),
        (Requirement("tier", "DoesNotExist"), True),
        (Requirement("tier", "NotIn", ("low",)), True),
        (Requirement("tier", "In", ("low",)), False),
        (Requirement("tier", "Exists"), False),
        (Requirement("tier", "Unheard"), True),
    ],
)
def test_it_is_for_the_pods_that_its_selector_selects(requirement: Requirement, selects: bool) -> None:
    [each] = pods(1)
    assert Budget("default", "guard", 0, expressions=(requirement,)).is_for(each) is selects


def test_without_a_selector_it_is_for_nobody_and_with_an_empty_one_for_all_of_its_namespace() -> None:
    [each] = pods(1)
    assert not Budget("default", "guard", selects=False).is_for(each)
    assert Budget("default", "guard").is_for(each)
    assert not Budget("other", "guard").is_for(each)


def test_what_one_unit_spends_the_next_has_not() -> None:
    spending = of(Budget("default", "guard", 3, LOW)).spending()
    first, second = pods(2), [replace(each, uid=each.uid + "'") for each in pods(2)]  # type: ignore[arg-type]
    assert spending.add(first)
    assert not spending.add(second)
    assert spending.add(second[:1])


def test_what_was_spent_of_one_stays_spent_when_another_is() -> None:
    budgets = of(Budget("default", "low", 1, LOW), Budget("default", "high", 1, {"app": "high"}))
    low, high = pods(2), pods(1, labels={"app": "high"})
    spending = budgets.spending()
    assert [spending.add([each]) for each in (low[0], high[0], low[1])] == [True, True, False]


def test_what_a_budget_has_to_spare_is_without_those_that_are_to_leave() -> None:
    budgets = of(Budget("default", "low", 3, LOW), Budget("default", "high", 2, {"app": "high"}))
    high = replace(pod("high-0", created=9.0), labels={"app": "high"})
    assert [each.name for each in budgets.likeliest_refused_first([high, *pods(3)])][-1] == "high-0"


def test_what_is_to_spare_is_counted_for_each_that_leaves_once() -> None:
    budgets = of(Budget("default", "low", 4, LOW), Budget("default", "high", 1, {"app": "high"}))
    high = replace(pod("high-0"), labels={"app": "high"})
    assert budgets.likeliest_refused_first([*pods(3), high])[0] is high


def test_a_budget_that_changes_or_goes_counts_as_it_is_now() -> None:
    budgets = of(Budget("default", "guard", 0, LOW))
    assert budgets.objection(pods(1)) is not None
    before = budgets.changes
    budgets.see(Budget("default", "guard", 0, LOW))
    assert budgets.changes == before
    budgets.see(Budget("default", "guard", 1, LOW))
    assert budgets.objection(pods(1)) is None
    budgets.see(Budget("default", "guard", 0, LOW))
    budgets.lose(Budget("default", "guard"))
    assert budgets.objection(pods(1)) is None
    assert not budgets
    assert budgets.changes == before + 3
    budgets.lose(Budget("default", "guard"))
    assert budgets.changes == before + 3


def test_whose_budget_has_least_to_spare_goes_first_and_whoever_has_none_last_the_youngest_first() -> None:
    tight, loose = {"app": "tight"}, {"app": "loose"}
    budgets = of(Budget("default", "tight", 1, tight), Budget("default", "loose", 5, loose))
    free = pods(2, labels={})
    guarded = [replace(pod("loose"), labels=loose), replace(pod("tight"), labels=tight)]
    order = budgets.likeliest_refused_first([*free, *guarded])
    assert [each.name for each in order] == ["tight", "loose", "low-1", "low-0"]


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 5), LABELS, st.booleans()), max_size=20), LABELS)
def test_those_about_a_pod_are_found_by_a_label_of_theirs_as_if_each_had_been_looked_at(
    news: list[tuple[int, dict[str, str], bool]], labels: dict[str, str]
) -> None:
    budgets, there = Budgets(), dict[str, Budget]()
    for number, selected, stays in news:
        budget = Budget("default", f"b{number}", 1, selected)
        if stays:
            there[budget.name] = budget
            budgets.see(budget)
        else:
            there.pop(budget.name, None)
            budgets.lose(budget)
    one = pod("one", labels=labels)
    expected = {name for name, budget in there.items() if budget.is_for(one)}
    assert {budget.name for budget in budgets.about(one)} == expected
    budgets.replace(there.values())
    assert {budget.name for budget in budgets.about(one)} == expected


def test_a_pod_about_which_very_many_may_be_is_taken_to_be_under_two() -> None:
    other = (Requirement("n", "Exists"),)
    many = [Budget("default", f"b{number}", 9, LOW, expressions=other) for number in range(100)]
    found = of(*many).objection(pods(1))
    assert isinstance(found, Overlapping)
    assert len(found.budgets) == 2
