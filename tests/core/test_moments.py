"""A world is put back to how it was, whatever has happened to it, and stays the same world."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.moments import Moment


@dataclass(slots=True)
class Slotted:
    left: Any = None
    right: Any = None


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    inner: Slotted


class Named(dict[str, int]):
    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def give(self) -> None:
        self.given += 1
        self[f"n{self.given}"] = self.given


@dataclass
class Thing:
    """One of each sort of what changes."""

    number: int = 0
    by_name: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    names: Named = field(default_factory=Named)
    row: list[Any] = field(default_factory=list)
    some: set[str] = field(default_factory=set)
    queue: deque[Any] = field(default_factory=lambda: deque(maxlen=3))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    column: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    pair: tuple[Any, ...] = ()
    slotted: Slotted = field(default_factory=Slotted)
    frozen: Frozen = field(default_factory=lambda: Frozen("f", Slotted(0)))

    def count(self) -> int:
        self.number += 1
        return self.number


class Tally:
    def __init__(self) -> None:
        self.made = 0


def _hears(thing: Thing) -> None:
    tally = Tally()
    tally.made = thing.number
    thing.by_name["made"] = vars(tally)
    thing.row = [*thing.row, thing.queue]
    thing.queue = deque(thing.queue, maxlen=3)


def _nests(thing: Thing) -> None:
    thing.pair = (thing.slotted, ({"deep": [thing.number]},))
    thing.slotted = Slotted(thing.pair)


CHANGES: dict[str, Callable[[Thing], object]] = {
    "a number": Thing.count,
    "the order of items": lambda thing: thing.by_name.update({"k0": thing.by_name.pop("k0", None)}),
    "no items": lambda thing: thing.by_name.clear(),
    "other items": lambda thing: setattr(thing, "by_name", {"k0": thing.by_name}),
    "an item": lambda thing: thing.by_name.update({f"k{len(thing.by_name) % 5}": [thing.number]}),
    "an item's item": lambda thing: thing.by_name.setdefault("k1", [0]).append(1),
    "a count": lambda thing: thing.counts.update("aab"),
    "a name": lambda thing: thing.names.give(),
    "a longer row": lambda thing: thing.row.append(thing.number),
    "a shorter row": lambda thing: thing.row.__delitem__(slice(0, 1)),
    "another in the row": lambda thing: thing.row.__setitem__(slice(0, 1), [Slotted(thing.row[:1])]),
    "none of some": lambda thing: thing.some.clear(),
    "one of some": lambda thing: thing.some.add(str(len(thing.some))),
    "one in the queue": lambda thing: thing.queue.append([thing.number]),
    "another queue": lambda thing: setattr(thing, "queue", deque([*thing.queue, [0]], maxlen=3)),
    "a machine's number": lambda thing: thing.numbers.append(thing.number),
    "in a column": lambda thing: thing.column.__iadd__(1),
    "another column": lambda thing: setattr(thing, "column", np.append(thing.column, 7)),
    "in a slot": lambda thing: setattr(thing.slotted, "left", [thing.slotted.left]),
    "in what is frozen": lambda thing: setattr(thing.frozen.inner, "left", [thing.frozen.inner.left]),
    "a thing of its own": _hears,
    "a nest": _nests,
}


def looks(thing: Thing) -> str:
    """All of it, the order of items included, but for that of a set."""
    return repr(vars(thing) | {"some": sorted(thing.some)})


@given(st.lists(st.lists(st.sampled_from(sorted(CHANGES)), max_size=6), min_size=1, max_size=6), st.data())
def test_a_world_is_as_it_was_at_any_of_its_moments(ways: list[list[str]], data: st.DataObject) -> None:
    thing = Thing()
    moments, as_it_was = [Moment(thing)], [looks(thing)]
    for way in ways:
        since = data.draw(st.integers(0, len(moments) - 1))
        moments[since].restore()
        assert looks(thing) == as_it_was[since]
        for change in way:
            CHANGES[change](thing)
        as_it_was.append(looks(thing))
        moments.append(Moment(thing, moments[since]))
    for moment, was in [*zip(moments, as_it_was, strict=True)][::-1]:
        moment.restore()
        assert looks(thing) == was


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_put_back_and_made_again_alike(change: str) -> None:
    thing = Thing()
    for each in CHANGES.values():
        each(thing)
    before, moment = looks(thing), Moment(thing)
    CHANGES[change](thing)
    after, later = looks(thing), Moment(thing, moment)
    assert after != before
    moment.restore()
    assert looks(thing) == before
    CHANGES[change](thing)
    assert looks(thing) == after
    later.restore()
    assert looks(thing) == after


def test_an_attribute_that_came_later_is_gone() -> None:
    thing = Thing()
    moment = Moment(thing)
    thing.more = 1  # type: ignore[attr-defined]
    moment.restore()
    assert not hasattr(thing, "more")


def test_it_is_the_same_world_also_where_it_refers_to_itself() -> None:
    thing, other = Thing(row=[1]), Thing()
    thing.by_name = {"itself": thing, "its row": thing.row, "its count": thing.count, "another's": other.count}
    moment = Moment(thing)
    row, told = thing.row, (thing.by_name["its count"], thing.by_name["another's"])
    thing.by_name, thing.row = {}, []
    row.clear()
    assert [count() for count in told] == [1, 1]
    moment.restore()
    assert thing.by_name["itself"] is thing
    assert thing.by_name["its row"] is thing.row is row
    assert (row, thing.number, other.number) == ([1], 0, 0)
    assert [count() for count in told] == [1, 1]


def test_what_could_be_reached_once_is_forgotten_some_time() -> None:
    thing = Thing()
    moment = Moment(thing)
    sizes = set()
    for _ in range(500):
        thing.by_name = {"new": [[]]}
        moment = Moment(thing, moment)
        sizes.add(len(moment._parts.all))
    assert max(sizes) < 2.5 * min(sizes)


def test_a_container_of_a_sort_that_nobody_has_needed_is_not_passed_over() -> None:
    with pytest.raises(AssertionError, match=r"OrderedDict.*not needed yet"):
        Moment(Thing(by_name={"o": OrderedDict()}))
