"""Servers that take as long as they are told, by a clock that nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from loadtests.goals.interleaved import Interleaved, Pairs


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

    def ask(self, question: object) -> object:
        self.clock.time += self.delay + self.seconds * self.chance.lognormvariate(0, 0.2)
        if self.chance.random() < 0.05:
            self.clock.time += 0.02
        return question


def measured(ours: float, theirs: float, delay: float = 0.0, *, seed: int, blocks: int = 30) -> Pairs:
    """Two servers that take so many seconds, of which ours is delayed."""
    clock, chance = Clock(), Random(seed)
    both = Interleaved(
        Server(clock, chance, ours, delay).ask, Server(clock, chance, theirs).ask, clock=clock.now, random=chance
    )
    return both.run(lambda: None, blocks, 20)
