"""Every order in which events can happen to a world that is small enough to try them all.

The graph of states is searched breadth first: whatever can happen is tried in each state, once; states that the world
calls equal are one. What is found wrong comes with a shortest story of how to get there. Must not know what the world
is about.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tests.core.moments import Moment

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


def explore(start: World, *, doubting: bool = False) -> Orders:
    """Every order of events from `start` on. Raises what the world raises, with the story as a note.

    `doubting`: the world's `state` is put to the test as well: where two ways lead to one state, they go on alike.
    """
    # Next to nothing that is thrown away is in a ring of references: it is not looked for all the while.
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


def _explore(world: World, doubting: bool) -> Orders:
    """The one world is put back to each of its moments in turn."""
    orders = Orders(_onward=[[]])
    # Hashes instead of states, for they are small. Of 64 bits: among a million, no two are the same by chance.
    numbers = {hash(world.state()): 0}
    ways_on: dict[int, list[int]] = {}
    to_go_on: deque[tuple[int, Moment]] = deque([(0, Moment(world))])
    while to_go_on:
        here, moment = to_go_on.popleft()
        moment.restore()
        again = here in ways_on
        events = world.possible()
        event = None
        reached: list[int] = []
        try:
            for event in events:
                if event is not events[0]:
                    moment.restore()
                world.happen(event)
                state = hash(world.state())
                there = numbers.setdefault(state, len(numbers))
                reached.append(there)
                if new := there == orders.states:
                    world.check()
                    orders._reached.append((here, event))
                    orders._onward.append([])
                if not (event.misfortune or again or (event.what == TIME and there == here)):
                    orders._onward[here].append((event.sort, there))
                if new or (doubting and not again):
                    to_go_on.append((there, Moment(world, moment)))
            event = None
            if not (orders._onward[here] or again):
                moment.restore()
                world.check_rest()
                orders.outcomes[world.outcome()] += 1
            if doubting:
                moment.restore()
                assert numbers.get(hash(world.state())) == here, "what has changed is not put back"
                assert ways_on.setdefault(here, sorted(reached)) == sorted(reached), "two states are taken for one"
        except Exception as error:
            error.add_note(f"after: {_told([*orders.story(here), *([event] if event else [])])}")
            raise
        orders.tried += 0 if again else len(events)
    return orders


def _told(story: Iterable[Event]) -> str:
    return "; ".join(map(str, story)) or "nothing"
