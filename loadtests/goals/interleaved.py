"""Interleaved: one client asks two sides the same, call by call, and times each. Knows nothing of HTTP.

What disturbs the machine meets both sides alike. Which is asked first is drawn for each question. Calls are told in
blocks, for those that follow each other share their luck: it is blocks that are drawn anew for an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

from extender.compare.figures import Estimate, Sample, ratio

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Ask = Callable[[Question], Answer]


class Pairs(NamedTuple):
    """Seconds of each call, by block, of both sides."""

    ours: Sample
    theirs: Sample

    @property
    def ratio(self) -> Estimate:
        """Of the medians."""
        found = ratio(self.ours, self.theirs)
        assert found is not None, "nothing was asked"
        return found


class Interleaved(Generic[Question, Answer]):
    """`check` raises if something is wrong with the two answers, ours first: what fails is not to count as fast."""

    def __init__(
        self,
        ours: Ask[Question, Answer],
        theirs: Ask[Question, Answer],
        check: Callable[[Answer, Answer], None] = lambda ours, theirs: None,
        *,
        clock: Callable[[], float] = perf_counter,
        random: Random,
    ) -> None:
        self._sides, self._check, self._clock, self._random = (ours, theirs), check, clock, random

    def run(self, question: Callable[[], Question], blocks: int, calls: int) -> Pairs:
        """So many calls of each side in each of so many blocks, after one block to warm up, which does not count. Every
        `question` is made before it is timed, and is put to both."""
        taken: tuple[dict[int, list[float]], dict[int, list[float]]] = {}, {}
        for block in range(-1, blocks):
            for _ in range(calls):
                for side, seconds in self._once(question()).items():
                    if block >= 0:
                        taken[side].setdefault(block, []).append(seconds)
        return Pairs(*taken)

    def _once(self, question: Question) -> dict[int, float]:
        seconds: dict[int, float] = {}
        answers: dict[int, Answer] = {}
        for side in self._random.sample((0, 1), 2):
            began = self._clock()
            answers[side] = self._sides[side](question)
            seconds[side] = self._clock() - began
        self._check(answers[0], answers[1])
        return seconds
