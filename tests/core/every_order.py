"""Every order in which events can happen to a world that is small enough to try them all.

The graph of states is searched breadth first: whatever can happen is tried in each state, once; states that the world
calls equal are one. What is found wrong comes with a shortest story of how to get there. Must not know what the world
is about.
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

TIME = "time passes"
"""The one thing that may happen for ever: if it changes nothing any more, the world is at rest."""


class Event(NamedTuple):
    what: str
    whom: str = ""
    sort: str = ""
    """Of whatever can happen all the while, one of its sort happens sooner or later; unless it is a misfortune."""
    misfortune: str = ""
    """Its name, if it is one: it may happen or not."""

    def __str__(self) -> str:
        return f"{self.what} {self.whom}".rstrip()


class World(Protocol):
    def possible(self) -> Sequence[Event]:
        """Whatever can happen next."""

    def happen(self, event: Event) -> None:
        """It has happened. Raises if it went wrong."""

    def state(self) -> Hashable:
        """Equal for worlds in which the same can happen and leads to the same."""

    def check(self) -> None:
        """Raises if something is as it must never be."""

    def check_rest(self) -> None:
        """Raises if something is as it must not stay. Nothing but misfortunes can happen any more."""

    def outcome(self) -> Hashable:
        """What has become of it, in a word."""


W = TypeVar("W", bound=World)


@dataclass
class Orders:
    """What was found. States are numbered as they were reached, from 0."""

    tried: int = 0
    """How many events were tried, over all states."""
    outcomes: Counter[Hashable] = field(default_factory=Counter)
    """In how many of the states that are at rest the world came to this."""
    _reached: list[tuple[int, Event]] = field(default_factory=list)
    _onward: list[list[tuple[str, int]]] = field(default_factory=list)
    """For each state those that follow without a misfortune, and by which sort of event."""

    @property
    def states(self) -> int:
        return len(self._onward)

    def __str__(self) -> str:
        ends = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(self.outcomes.items(), key=str))
        return f"{self.states} states, {self.tried} events tried; at rest {ends}"

    def story(self, state: int) -> list[Event]:
        """A shortest way from the start."""
        events: list[Event] = []
        while state:
            state, event = self._reached[state - 1]
            events.append(event)
        return events[::-1]

    def endless(self) -> list[int]:
        """States that can follow each other for ever without a misfortune, and though nothing is put off for ever."""
        for ring in self._rings():
            within = set(ring)
            always = set.intersection(*({sort for sort, _ in self._onward[state]} for state in ring))
            done = {sort for state in ring for sort, there in self._onward[state] if there in within}
            if always <= done:
                return ring
        return []

    def _rings(self) -> Iterator[list[int]]:
        """Sets of states each of which can be reached from each other one of the set (Tarjan's algorithm)."""
        number: dict[int, int] = {}
        lowest: dict[int, int] = {}
        path: list[int] = []
        for root in range(self.states):
            calls = [(root, iter(self._onward[root]))] if root not in number else []
            while calls:
                state, following = calls[-1]
                if state not in number:
                    number[state] = lowest[state] = len(number)
                    path.append(state)
                for _, there in following:
                    if there not in number:
                        calls.append((there, iter(self._onward[there])))
                        break
                    lowest[state] = min(lowest[state], lowest[there])
                else:
                    calls.pop()
                    if calls:
                        lowest[calls[-1][0]] = min(lowest[calls[-1][0]], lowest[state])
                    if lowest[state] == number[state]:
                        ring = path[path.index(state) :]
                        del path[-len(ring) :]
                        lowest.update(dict.fromkeys(ring, self.states))
                        if len(ring) > 1 or any(there == state for _, there in self._onward[state]):
                            yield ring


def explore(start: W, *, doubting: bool = False) -> Orders:
    """Every order of events from `start` on. Raises what the world raises, with the story as a note.

    `doubting`: the world's `state` is put to the test as well: where two ways lead to one state, they go on alike.
    """
    # Most worlds are thrown away at once, in rings of references: they are collected before they count as old ones.
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 1000)
    try:
        orders = _explore(start, doubting)
    finally:
        gc.set_threshold(*usual)
    if endless := orders.endless():
        ways = "; or: ".join(_told(orders.story(state)) for state in endless[:10])
        raise AssertionError(f"it may never come to rest, but go on from one of these to the next for ever: {ways}")
    return orders


def _explore(start: W, doubting: bool) -> Orders:
    orders = Orders(_onward=[[]])
    # Hashes instead of states, for they are small. Of 64 bits: among a million, no two are the same by chance.
    numbers = {hash(start.state()): 0}
    ways_on: dict[int, list[int]] = {}
    to_go_on: deque[tuple[int, W]] = deque([(0, start)])
    while to_go_on:
        here, world = to_go_on.popleft()
        again = here in ways_on
        events = world.possible()
        resting = all(event.misfortune or event.what == TIME for event in events)
        event = None
        reached: list[int] = []
        try:
            for event in events:
                # The last one may have the world itself, if nobody looks at it afterwards.
                then = copied(world) if doubting or resting or event is not events[-1] else world
                then.happen(event)
                state = hash(then.state())
                there = numbers.setdefault(state, len(numbers))
                reached.append(there)
                if new := there == orders.states:
                    then.check()
                    orders._reached.append((here, event))
                    orders._onward.append([])
                if not (event.misfortune or again or (event.what == TIME and there == here)):
                    orders._onward[here].append((event.sort, there))
                if new or (doubting and not again):
                    to_go_on.append((there, then))
            event = None
            if not (orders._onward[here] or again):
                world.check_rest()
                orders.outcomes[world.outcome()] += 1
            if doubting:
                assert numbers.get(hash(world.state())) == here, "a copy shares what changes"
                assert ways_on.setdefault(here, sorted(reached)) == sorted(reached), "two states are taken for one"
        except Exception as error:
            error.add_note(f"after: {_told([*orders.story(here), *([event] if event else [])])}")
            raise
        orders.tried += 0 if again else len(events)
    return orders


def _told(story: Iterable[Event]) -> str:
    return "; ".join(map(str, story)) or "nothing"


# -- copies ----------------------------------------------------------------------------------------------------------


def copied(world: W) -> W:
    """A copy that shares nothing that changes.

    Ten times as fast as the standard library's, for it knows more: only containers change, and objects of ours that are
    not frozen or have a field for one that is not; and what a container holds is of one kind.
    """
    copy: W = _copied(world, {})
    return copy


Copying = Callable[[Any, dict[int, Any]], Any]
Slot = tuple[Callable[[Any], Any], Callable[[Any, Any], None]]
"""How it is read and how it is set, also in what is frozen."""


def _copied(value: Any, known: dict[int, Any]) -> Any:
    how = _HOW[type(value)]
    if how is None:
        return value
    copy = known.get(id(value))
    return how(value, known) if copy is None else copy


class _Hows(dict[type, Copying | None]):
    """How values of a type are copied; None where they never change."""

    def __missing__(self, kind: type) -> Copying | None:
        how: Copying | None = None
        if issubclass(kind, dict):
            how = _copied_dict if kind is dict else _copied_kind_of_dict
        elif issubclass(kind, (list, set, deque)):
            how = _copied_collection
        elif kind is array:
            how = _copied_array
        elif kind is tuple:
            how = _copied_tuple
        elif kind is MethodType:
            how = _copied_method
        elif _changes(kind):
            how = partial(_copied_object, slots) if (slots := _slots(kind)) else _copied_instance
        self[kind] = how
        return how


_HOW = _Hows()


def _changes(kind: Any) -> bool:
    if not isinstance(kind, type) or not kind.__module__.startswith(("extender.", "tests.")):
        return False
    params = getattr(kind, "__dataclass_params__", None)
    if params is not None and params.frozen:
        return any(_changes(part) for hint in get_type_hints(kind).values() for part in (hint, *get_args(hint)))
    return not issubclass(kind, (Enum, tuple))


def _slots(kind: type) -> list[Slot]:
    members = (vars(base)[name] for base in kind.__mro__ for name in vars(base).get("__slots__", ()))
    return [(member.__get__, member.__set__) for member in members]


def _copied_dict(value: dict[Any, Any], known: dict[int, Any]) -> dict[Any, Any]:
    copy = known[id(value)] = value.copy()
    for first in copy.values():
        if _HOW[type(first)] is not None:
            _copy_values(copy, known)
        break
    return copy


def _copy_values(values: dict[Any, Any], known: dict[int, Any]) -> None:
    """Those of them that change, each in place of what it is a copy of."""
    for key, each in values.items():
        how = _HOW[type(each)]
        if how is not None:
            copy = known.get(id(each))
            values[key] = how(each, known) if copy is None else copy


def _copied_kind_of_dict(value: Any, known: dict[int, Any]) -> Any:
    copy = _copied_instance(value, known)
    for key, each in value.items():
        copy[key] = _copied(each, known)
    return copy


def _copied_collection(value: Any, known: dict[int, Any]) -> Any:
    copy = known[id(value)] = value.copy()
    for first in copy:
        assert _HOW[type(first)] in (None, _copied_tuple), f"a collection of {type(first)}: not needed yet"
        break
    return copy


def _copied_array(value: array[int], known: dict[int, Any]) -> array[int]:
    copy = known[id(value)] = value[:]
    return copy


def _copied_tuple(value: tuple[Any, ...], known: dict[int, Any]) -> tuple[Any, ...]:
    for each in value:
        if _HOW[type(each)] is not None:
            return tuple([_copied(each, known) for each in value])
    return value


def _copied_method(value: MethodType, known: dict[int, Any]) -> MethodType:
    return MethodType(value.__func__, _copied(value.__self__, known))


def _copied_object(slots: Sequence[Slot], value: Any, known: dict[int, Any]) -> Any:
    copy = known[id(value)] = object.__new__(type(value))
    for read, write in slots:
        each = read(value)
        write(copy, each if _HOW[type(each)] is None else _copied(each, known))
    return copy


def _copied_instance(value: Any, known: dict[int, Any]) -> Any:
    copy = known[id(value)] = value.__new__(type(value))
    copy.__dict__.update(value.__dict__)
    _copy_values(copy.__dict__, known)
    return copy
