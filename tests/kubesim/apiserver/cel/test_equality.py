"""When values are equal: lists as their schema has them compared, what is not what the schema says, points in time."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.apiserver.cel import Failed, compiled
from kubesim.apiserver.cel.values import equal, instant
from kubesim.apiserver.schemas.schema_types import cel_type

PAIR = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pairs": {"type": "array", "items": PAIR, **MAP},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "pair": PAIR,
        "when": {"type": "string", "format": "date-time"},
        "any": {"x-kubernetes-int-or-string": True},
    },
}
OF_SELF = cel_type(SCHEMA)
A, B = {"k": "a", "v": 1}, {"k": "b", "v": 2}


def _same(field: str, one: object, other: object) -> Any:
    assert OF_SELF is not None
    program = compiled(f"self.{field} == oldSelf.{field}", {"self": OF_SELF, "oldSelf": OF_SELF})
    return program({"self": {field: one}, "oldSelf": {field: other}})


@pytest.mark.parametrize(
    ("field", "one", "other", "same"),
    [
        ("pairs", [A, B], [B, A], True),
        ("pairs", [A, B], [A], False),
        ("pairs", [A], [{"k": "a", "v": 2}], False),
        ("pairs", [A], [{"k": "c", "v": 1}], False),
        ("set", ["a", "b"], ["b", "a"], True),
        ("set", ["a", "b"], ["b", "c"], False),
        ("plain", ["a", "b"], ["b", "a"], False),
        ("map", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("map", {"a": 1}, {"b": 1}, False),
        ("pair", A, {"v": 1, "k": "a"}, True),
        ("pair", A, B, False),
        ("pair", {**A, "odd": True}, {**A, "odd": 1}, False),
        ("when", "2026-01-01T00:00:00Z", "2026-01-01t01:00:00+01:00", True),
        ("when", "2026-01-01T00:00:00Z", "2025-12-31T23:00:00-01:00", True),
        ("when", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00Z", False),
        ("any", 1, "1", False),
    ],
)
def test_two_values_of_a_field_are_equal_as_the_schema_has_it(field: str, one: Any, other: Any, same: bool) -> None:
    assert _same(field, one, other) is same


@pytest.mark.parametrize(
    ("field", "wrong"), [("pairs", {}), ("set", "a"), ("map", []), ("pair", 3), ("when", "yesterday")]
)
def test_what_is_not_what_the_schema_says_has_no_value(field: str, wrong: object) -> None:
    with pytest.raises(Failed):
        _same(field, wrong, wrong)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (True, 1, False),
        (1, 1.0, True),
        ([1, [2]], [1, [2]], True),
        ([1], 1, False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, None, False),
    ],
)
def test_values_of_which_only_json_knows_the_type_are_equal_as_they_are(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is same


@pytest.mark.parametrize(
    "text", ["", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+00:60"]
)
def test_what_is_no_point_in_time_has_no_value(text: str) -> None:
    with pytest.raises(Failed, match="invalid timestamp"):
        instant(text)
