"""What is remembered and what is forgotten, against a list of all that was ever set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.common.bounded import Bounded


def test_the_oldest_is_forgotten_beyond_the_limit() -> None:
    known: Bounded[str, int] = Bounded(2)
    for number, name in enumerate("abc"):
        known[name] = number
    assert dict(known) == {"b": 1, "c": 2}
    assert "a" not in known
    assert known.get("a") is None


def test_keys_are_set_in_no_other_way() -> None:
    known: Bounded[str, int] = Bounded(2)
    with pytest.raises(TypeError):
        known.update({"a": 1})  # type: ignore[misc]
    with pytest.raises(TypeError):
        known |= {"a": 1}  # type: ignore[misc]
    assert not known


def test_what_is_set_anew_is_the_newest() -> None:
    known: Bounded[str, int] = Bounded(2)
    for name in "abac":
        known[name] = 0
    assert list(known) == ["a", "c"]


def test_what_is_taken_out_makes_room() -> None:
    known: Bounded[str, int] = Bounded(2)
    known["a"] = known["b"] = 0
    assert known.pop("a") == 0
    assert known.pop("a", 7) == 7
    known["c"] = 0
    assert list(known) == ["b", "c"]


def test_what_is_there_already_is_not_set_anew_by_default() -> None:
    known: Bounded[str, set[int]] = Bounded(2)
    for name in "aba":
        known.setdefault(name, set()).add(1)
    known["c"] = set()
    assert list(known) == ["b", "c"]


@given(limit=st.integers(1, 5), keys=st.lists(st.integers(0, 9)))
def test_those_set_last_are_known_whatever_the_order(limit: int, keys: list[int]) -> None:
    known: Bounded[int, int] = Bounded(limit)
    for when, key in enumerate(keys):
        known[key] = when
    latest = {key: when for when, key in enumerate(keys)}
    expected = sorted(latest, key=latest.__getitem__)[-limit:]
    assert list(known.items()) == [(key, latest[key]) for key in expected]
