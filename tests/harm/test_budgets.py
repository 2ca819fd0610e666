"""What budgets allowed a moment ago, and whom they are about."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.harm.budgets import Budgets, selects
from loadtests.harm.facts import Facts, read


def pod(name: str, **labels: str) -> Facts:
    return read({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": labels}, "spec": {}})


def budget(allowed: int, name: str = "b", namespace: str = "a", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


PODS = [pod("p0", app="x"), pod("p1", app="x"), pod("p2", app="y")]


def test_as_many_may_go_as_each_budget_allows() -> None:
    budgets = Budgets()
    assert budgets.objection(PODS, 0.0) == ""
    budgets.see(budget(2, app="x"), 1.0, gone=False)
    assert budgets.objection(PODS, 1.0) == ""
    budgets.see(budget(1, "c", app="x"), 1.0, gone=False)
    assert "2 budgets" in budgets.objection(PODS, 1.0)
    budgets.see(budget(1, "b", app="x"), 1.0, gone=True)
    assert "allowed 1" in budgets.objection(PODS, 1.0)


def test_what_was_allowed_a_moment_ago_counts_and_what_was_long_ago_does_not() -> None:
    budgets = Budgets()
    for at, allowed in ((0.0, 5), (10.0, 2), (20.0, 1)):
        budgets.see(budget(allowed, app="x"), at, gone=False)
    assert budgets.objection(PODS, 21.0) == ""
    assert budgets.objection(PODS, 30.0) != ""


def test_a_budget_of_another_namespace_says_nothing() -> None:
    budgets = Budgets()
    budgets.see(budget(0, namespace="z", app="x"), 0.0, gone=False)
    assert budgets.objection(PODS, 0.0) == ""


@pytest.mark.parametrize(
    ("line", "labels", "taken"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, {"a": "2"}, True),
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, {}, False),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {"a": "1"}, False),
        ({"key": "a", "operator": "Exists"}, {"a": ""}, True),
        ({"key": "a", "operator": "DoesNotExist"}, {"a": ""}, False),
    ],
)
def test_expressions_select_as_labels_do(line: dict[str, Any], labels: dict[str, str], taken: bool) -> None:
    assert selects({"matchExpressions": [line]}, labels) is taken


def test_an_empty_selector_takes_all() -> None:
    assert selects({}, {"a": "b"})
