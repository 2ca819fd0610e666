"""Soft constraints: every order in which cancel, bind, news, deadlines, deaths and evictions can come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest

from extender.esl.base import TimePassed
from extender.esl.policies.soft import Soft
from extender.kube.names import NodeName
from tests.esl.policy_world import PolicyWorld, nodes
from tests.esl.test_soft import any_of, data


class Play:
    """A world with one task and two alternatives, both possible, so that it may be bound at any moment; whoever plays
    has so many deadlines, deaths of the application, evictions and ends to spend."""

    def __init__(self, path: Sequence[int], deadlines: int, deaths: int, evictions: int) -> None:
        self.world = PolicyWorld(self.policy(), nodes({"n1": 8}))
        self.world.units = {(NodeName("n1"), data("a")): 1, (NodeName("n1"), data("b")): 1}
        self.left = {"deadline": deadlines, "death": deaths, "eviction": evictions, "end": 1, "removal": 1}
        self.forgotten = 0
        """How often the application has died when its pod had run and was gone, so that nobody can know of it."""
        self.world.ask("t")
        for choice in path:
            self.moves()[choice]()

    @staticmethod
    def policy() -> Soft:
        return any_of({data("a"): 1}, {data("b"): 1})

    def moves(self) -> list[Callable[[], None]]:
        moves = self.world.actions()
        pod = self.world.pods.get("soft--t")
        if self.left["deadline"] and self.world.esl.next_deadline() is not None:
            moves.append(lambda: self._spend("deadline", self._deadline))
        if self.left["death"]:
            moves.append(lambda: self._spend("death", self._die))
        if self.left["eviction"] and pod is not None and not pod.finished:
            moves.append(lambda: self._spend("eviction", lambda: self.world.delete("soft--t")))
        if self.left["end"] and pod is not None and pod.node and not pod.finished:
            moves.append(lambda: self._spend("end", lambda: self.world.finish("soft--t")))
        if self.left["removal"] and pod is not None and pod.finished:
            moves.append(lambda: self._spend("removal", lambda: self.world.delete("soft--t")))
        return moves

    def shape(self) -> str:
        """Two plays of one shape go on alike."""
        return f"{self.left} {self.forgotten} {_shape(self.world)}"

    def _spend(self, what: str, move: Callable[[], None]) -> None:
        self.left[what] -= 1
        move()

    def _deadline(self) -> None:
        self.world.now = max(self.world.now, self.world.esl.next_deadline() or 0.0)
        self.world.perform(self.world.esl.handle(TimePassed(), self.world.now))

    def _die(self) -> None:
        self.forgotten += bool(self.world.bound) and not self.world.pods
        self.world.restart(self.policy())
        self.world.ask("t")


def _shape(thing: object) -> str:
    if isinstance(thing, dict):
        return "{" + ",".join(sorted(f"{_shape(key)}:{_shape(value)}" for key, value in thing.items())) + "}"
    if isinstance(thing, list | tuple | deque):
        return "[" + ",".join(map(_shape, thing)) + "]"
    if callable(thing) or type(thing).__name__ == "Random":
        return ""
    if type(thing).__module__.startswith(("extender.esl", "tests.")) and hasattr(thing, "__dict__"):
        return type(thing).__name__ + _shape({key: value for key, value in vars(thing).items() if key != "notices"})
    return repr(thing)


def every_play(**spent: int) -> tuple[int, int]:
    """How many plays of different shape there are, and in how many of them the task has been bound."""
    shapes, bound = {Play((), **spent).shape()}, 0
    paths: deque[tuple[int, ...]] = deque([()])
    while paths:
        path = paths.popleft()
        play = Play(path, **spent)
        for choice in range(len(play.moves())):
            following = (*path, choice)
            shape = Play(following, **spent).shape()
            if shape not in shapes:
                shapes.add(shape)
                paths.append(following)
        bound += bool(play.world.bound)
        check(play, path)
    return len(shapes), bound


def check(play: Play, path: Sequence[int]) -> None:
    """It has not run more than once; and from here, if nothing more befalls it, it runs, unless it did."""
    most = 1 + play.forgotten
    assert len(play.world.bound) <= most, path
    play.world.pass_time(200)
    assert 1 <= len(play.world.bound) <= most, path
    assert len(play.world.pods) <= 1, path


@pytest.mark.parametrize(
    ("deadlines", "deaths", "evictions"), [(3, 0, 0), (2, 1, 0), (2, 0, 1), (1, 2, 0), (1, 1, 1), (0, 0, 2)]
)
def test_in_every_order_of_cancel_bind_news_and_deadlines_the_task_runs_exactly_once(
    deadlines: int, deaths: int, evictions: int
) -> None:
    plays, bound = every_play(deadlines=deadlines, deaths=deaths, evictions=evictions)
    assert plays > 50
    assert 0 < bound < plays
