"""Transactions: which order of them explains what there is, and that a half is found."""

from __future__ import annotations

import pytest

from extender.app.resources.intent_log import IntentLog
from loadtests.fault_simulation.actors.transactions import Tried, Values, explained
from loadtests.fault_simulation.plan import Fault, Plan, Work
from loadtests.fault_simulation.run import run

BOTH = Work("transaction", "x0", 1.0, capacity=11, over=("a", "b"))
LATER = Work("transaction", "x1", 9.0, capacity=12, over=("b", "c"))


def tried(*, first: bool | None, second: bool | None) -> list[Tried]:
    """One after the other, where the callers were told what became of them."""
    ended = [float("inf") if done is None else at for done, at in ((first, 2.0), (second, 10.0))]
    return [Tried(BOTH, 1.0, ended[0], first), Tried(LATER, 9.0, ended[1], second)]


@pytest.mark.parametrize(
    ("values", "first", "second", "is_explained"),
    [
        ({"a": 11, "b": 12, "c": 12}, True, True, True),
        ({"a": 11, "b": 12, "c": 12}, None, True, True),
        ({"a": 11, "b": 11, "c": 12}, True, True, False),
        ({"a": 11, "b": 11, "c": 12}, None, True, True),
        ({"b": 12, "c": 12}, None, True, True),
        ({"b": 12, "c": 12}, True, True, False),
        ({"a": 11, "b": 11}, True, False, True),
        ({"a": 11, "b": 11}, True, True, False),
        ({"a": 11}, None, None, False),
        ({}, False, None, True),
        ({"b": 12, "c": 12}, False, False, False),
    ],
)
def test_some_order_of_whole_transactions_explains_what_there_is(
    values: Values, first: bool | None, second: bool | None, is_explained: bool
) -> None:
    assert explained(values, tried(first=first, second=second)) is is_explained


def test_of_one_that_ended_by_itself_nothing_is_left() -> None:
    ends = Work("transaction", "x0", 1.0, capacity=11, over=("a", "b"), seconds=5.0)
    assert explained({}, [Tried(ends, 1.0, 2.0, True)])
    assert not explained({"a": 11, "b": 11}, [Tried(ends, 1.0, 2.0, True)])


KILLED = Plan(
    7, (BOTH, LATER), (Fault("kill-service", 9.004, 1.5), Fault("late-request", 0.9, 0.4, of="intent creations"))
)


def test_a_service_that_dies_within_one_leaves_none_in_part() -> None:
    result = run(KILLED)
    assert result.is_clean, result.findings
    assert result.lives == 3


def test_a_service_that_takes_nothing_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IntentLog, "more_due", lambda self, steady: ((), None))
    found = run(Plan(7, (BOTH,), (Fault("kill-service", 1.0025, 1.5),)))
    assert {each.kind for each in found.findings} & {"transaction", "left over"}, found.findings
