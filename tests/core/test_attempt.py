"""What a pod says about the attempt in which it was bound, and when that is not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.attempt import ATTEMPT, NAMED, Attempt, attempts_for, read_attempt, to_annotation
from extender.kube.names import PodUid

A, B, C = PodUid("a"), PodUid("b"), PodUid("c")


def said(**instead: Any) -> dict[str, str]:
    whole = {"pod": "a", "attempt": "x1", "needed": 2, "size": 3, "with": ["b", "c"], "at": 12.5}
    return {ATTEMPT: json.dumps({key: value for key, value in (whole | instead).items() if value is not None})}


def test_what_is_written_is_read() -> None:
    marks = attempts_for("x1", [C, A, B], needed=2)
    assert marks[A] == Attempt("x1", 2, 3, (B, C))
    for mark in (marks[A], replace(marks[A], at=12.5), replace(marks[A], joins=True)):
        assert read_attempt({ATTEMPT: to_annotation(mark, A)}, A) == mark


def test_it_is_written_in_few_characters() -> None:
    mark = Attempt("x1", 2, 3, (B, C), at=12.34567)
    assert to_annotation(mark, A) == '{"pod":"a","attempt":"x1","needed":2,"size":3,"with":["b","c"],"at":12.346}'
    assert to_annotation(replace(mark, at=1.0, joins=True), A) == (
        '{"pod":"a","attempt":"x1","needed":2,"size":3,"with":["b","c"],"at":1.0,"joins":true}'
    )


def test_how_many_there_are_is_told_if_more_than_those_that_are_bound_now() -> None:
    assert attempts_for("x1", [A, B], needed=2, size=5)[A] == Attempt("x1", 2, 5, (B,))
    assert attempts_for("x1", [A, B], needed=2, size=1)[A] == Attempt("x1", 2, 2, (B,))
    assert attempts_for("x1", [A], needed=1, joins=True) == {A: Attempt("x1", 1, 1, joins=True)}


@pytest.mark.parametrize(
    ("instead", "read"),
    [
        ({}, Attempt("x1", 2, 3, (B, C), 12.5)),
        ({"with": []}, Attempt("x1", 2, 3, (), 12.5)),
        ({"needed": 3}, Attempt("x1", 3, 3, (B, C), 12.5)),
        ({"needed": 1, "size": 1, "with": []}, Attempt("x1", 1, 1, (), 12.5)),
        ({"at": 0}, Attempt("x1", 2, 3, (B, C), 0.0)),
        ({"at": 999_999_999_999}, Attempt("x1", 2, 3, (B, C), 999_999_999_999.0)),
        ({"joins": True}, Attempt("x1", 2, 3, (B, C), 12.5, joins=True)),
    ],
)
def test_what_it_says_is_taken_from_it(instead: dict[str, Any], read: Attempt) -> None:
    assert read_attempt(said(**instead), A) == read


def test_a_text_of_4096_characters_is_read_and_no_longer_one() -> None:
    text = said()[ATTEMPT]
    assert read_attempt({ATTEMPT: text.ljust(4096)}, A) is not None
    assert read_attempt({ATTEMPT: text.ljust(4097)}, A) is None


def test_a_copy_of_a_pod_proves_nothing() -> None:
    assert read_attempt(said(), A) is not None
    assert read_attempt(said(), B) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"pod": None},
        {"pod": 3},
        {"attempt": ""},
        {"attempt": 7},
        {"needed": 0},
        {"needed": 4},
        {"needed": True},
        {"needed": "2"},
        {"size": 1.5},
        {"size": 2},
        {"with": "b"},
        {"with": [1]},
        {"at": "yesterday"},
        {"at": True},
        {"at": float("nan")},
        {"at": 10**400},
        {"at": -1},
        {"at": 10**12},
        {"at": None},
        {"attempt": None},
        {"with": None},
        {"with": ["b", 1]},
        {"with": ["b", "c", "d"]},
        {"needed": -1},
    ],
)
def test_what_a_user_made_of_it_proves_nothing(broken: dict[str, Any]) -> None:
    assert read_attempt(said(**broken), A) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "[" * 4000, "x" * 5000, '{"pod": "a"}'])
def test_what_is_no_attempt_at_all_proves_nothing(text: str) -> None:
    assert read_attempt({ATTEMPT: text}, A) is None
    assert read_attempt({}, A) is None


@given(st.integers(1, 60))
def test_each_is_named_by_all_those_before_it_and_none_names_too_many(size: int) -> None:
    members = [PodUid(f"{number:03}") for number in range(size)]
    marks = attempts_for("x", members, needed=1)
    for uid, mark in marks.items():
        assert uid not in mark.others
        assert len(mark.others) == len(set(mark.others)) == min(NAMED, size - 1)
        assert sum(uid in other.others for other in marks.values()) == min(NAMED, size - 1)
        assert len(to_annotation(mark, uid)) < 4096
