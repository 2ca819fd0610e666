"""Servers that take as long as they are told, by a clock that nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from loadtests.goals.measuring.interleaved import Interleaved, Taken


@dataclass
class Clock:
    time: float = 0.0

    def now(self) -> float:
        return self.time


@dataclass
class Server:
    """Answers after so many seconds, more or less; now and then the machine has something else to do meanwhile."""

    clock: Clock
    chance: Random
    seconds: float
    delay: float = 0.0
    spent: float = 0.0

    def ask(self, question: object) -> object:
        self.spent += self.seconds
        self.clock.time += self.delay + self.seconds * self.chance.lognormvariate(0, 0.2)
        if self.chance.random() < 0.05:
            self.clock.time += 0.02
        return question


def measured(ours: float, theirs: float, delay: float = 0.0, *, seed: int, blocks: int = 30) -> Taken:
    """Two servers that take so many seconds, of which ours is delayed."""
    clock, chance = Clock(), Random(seed)
    one, other = Server(clock, chance, ours, delay), Server(clock, chance, theirs)
    spent = (lambda: one.spent), (lambda: other.spent)
    both = Interleaved(one.ask, other.ask, clock=clock.now, spent=spent, random=chance)
    return both.run(lambda: None, blocks, 20)
