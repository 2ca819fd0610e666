"""Values are what they were, once written as JSON and read; and nothing else is made of what is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, NewType

import pytest

from extender.adapters.value_codec import Malformed, Shape

Uid = NewType("Uid", str)


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Key:
    name: str


@dataclass(frozen=True)
class Other:
    size: int


@dataclass(frozen=True)
class Whole:
    number: int
    uid: Uid = Uid("")
    seconds: float = 0.0
    colour: Colour | None = None
    pairs: tuple[tuple[str, int], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    by_key: Mapping[Key, float] = field(default_factory=dict)
    either: Key | Other | str | None = None
    names: frozenset[str] | None = None
    many: list[Key] = field(default_factory=list)


SHAPE: Shape[Whole] = Shape(Whole)
VALUES = [
    Whole(1),
    Whole(1, Uid("u"), 1.5, Colour.RED, (("a", 1), ("b", 2)), {"a": "b"}, {Key("k"): inf}),
    Whole(2, either=Key("k")),
    Whole(2, either=Other(3)),
    Whole(2, either="text", names=frozenset({"b", "a"}), many=[Key("x"), Key("y")]),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_it_was(value: Whole) -> None:
    assert SHAPE.from_plain(json.loads(json.dumps(SHAPE.to_plain(value), allow_nan=False))) == value


def test_what_is_as_by_default_is_not_written() -> None:
    assert SHAPE.to_plain(Whole(1)) == {"number": 1}


def test_of_several_kinds_each_has_its_name() -> None:
    assert SHAPE.to_plain(Whole(1, either=Other(3)))["either"] == {"Other": {"size": 3}}


def test_sets_are_written_in_an_order_that_does_not_depend_on_hashes() -> None:
    assert SHAPE.to_plain(Whole(1, names=frozenset("bca")))["names"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ([], "expected Whole, found []"),
        ({}, "Whole has no number"),
        ({"number": "1"}, "Whole.number: expected int, found '1'"),
        ({"number": True}, "Whole.number: expected int, found True"),
        ({"number": 1, "else": 2}, "Whole has no field 'else'"),
        ({"number": 1, "seconds": "soon"}, "Whole.seconds: expected float, found 'soon'"),
        ({"number": 1, "colour": "blue"}, "Whole.colour: expected one of ['red'], found 'blue'"),
        ({"number": 1, "pairs": [["a"]]}, "Whole.pairs: expected 2 values, found ['a']"),
        ({"number": 1, "pairs": {}}, "Whole.pairs: expected a list, found {}"),
        ({"number": 1, "labels": []}, "Whole.labels: expected a mapping, found []"),
        ({"number": 1, "either": {"Path": {}}}, "Whole.either: expected one of ['Key', 'Other'], found 'Path'"),
        ({"number": 1, "either": 5}, "Whole.either: expected one of ['Key', 'Other'], found 5"),
        ({"number": 1, "either": {"Key": {"name": None}}}, "Whole.either: Key.name: expected str, found None"),
    ],
)
def test_what_is_no_such_value_is_refused_and_it_is_said_where(plain: Any, said: str) -> None:
    with pytest.raises(Malformed) as refused:
        SHAPE.from_plain(plain)
    assert str(refused.value) == said


def test_what_nobody_can_write_is_refused_before_anything_is_written() -> None:
    with pytest.raises(TypeError, match="no value of <class 'object'> can be written"):
        Shape(object)
