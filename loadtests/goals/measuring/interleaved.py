"""Interleaved: one client asks two sides the same, call by call, and times each.

Disturbances of the machine hit both sides alike. The first side of each question is random. Calls are grouped in
blocks, because consecutive calls are correlated: the bootstrap draws blocks for an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from random import Random
from statistics import median
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

from lab.compare.reporting.figures import Estimate, Sample, ratio

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Ask = Callable[[Question], Answer]
Seconds = Callable[[], float]


class Pairs(NamedTuple):
    """Seconds, by block, of both sides."""

    ours: Sample
    theirs: Sample

    @property
    def ratio(self) -> Estimate:
        """The ratio of the medians."""
        found = ratio(self.ours, self.theirs)
        assert found is not None, "nothing was asked"
        return found

    @property
    def milliseconds(self) -> str:
        """The medians of both, for people: they hold for this machine and time only."""
        ours, theirs = (median(chain.from_iterable(side.values())) * 1000 for side in self)
        return f"{ours:.2f} ms, {theirs:.2f} ms"


class Taken(NamedTuple):
    """`passed`: time of each call. `spent`: CPU time a call by block, with work between calls."""

    passed: Pairs
    spent: Pairs


_SIDES = (0, 1)


def _nothing() -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    return {}, {}


class Interleaved(Generic[Question, Answer]):
    """`check` raises if the two answers, ours first, are wrong. `spent`: CPU time so far."""

    def __init__(
        self,
        ours: Ask[Question, Answer],
        theirs: Ask[Question, Answer],
        check: Callable[[Answer, Answer], None] = lambda ours, theirs: None,
        *,
        clock: Seconds = perf_counter,
        spent: tuple[Seconds, Seconds],
        random: Random,
    ) -> None:
        self._sides, self._check, self._random = (ours, theirs), check, random
        self._clock, self._spent = clock, spent

    def run(self, question: Callable[[], Question], blocks: int, calls: int) -> Taken:
        """Returns `calls` calls of each side in each of `blocks` blocks, after a block to warm up.

        Each `question` is made before it is timed, and goes to both sides.
        """
        passed, spent = _nothing(), _nothing()
        for block in range(-1, blocks):
            before = [so_far() for so_far in self._spent]
            of_block = [self._once(question()) for _ in range(calls)]
            after = [so_far() for so_far in self._spent]
            if block >= 0:
                for side in _SIDES:
                    passed[side][block] = [seconds[side] for seconds in of_block]
                    spent[side][block] = [(after[side] - before[side]) / calls]
        return Taken(Pairs(*passed), Pairs(*spent))

    def _once(self, question: Question) -> dict[int, float]:
        seconds: dict[int, float] = {}
        answers: dict[int, Answer] = {}
        for side in self._random.sample(_SIDES, 2):
            began = self._clock()
            answers[side] = self._sides[side](question)
            seconds[side] = self._clock() - began
        self._check(answers[0], answers[1])
        return seconds
