"""Plan: which trials a comparison has, and in which order. The same plan has the same trials under the same numbers.

Every round has every approach once, in an order drawn from the seed, so that what changes on the machine meanwhile
meets all of them alike. The first rounds of each set-up warm up; they are kept, and count in no figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from extender.compare import brought
from extender.compare.approaches import MADE, REAL_ONLY
from extender.compare.runs import REAL
from extender.compare.vocabulary import base_of
from extender.controlplane.errors import WrongUse

SINGLE = "single"
USUAL = tuple(each for each in MADE if each not in brought.BROUGHT)
"""The approaches that need nothing from elsewhere."""
MOST_NODES, LARGEST = 5000, 256
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class Trial:
    """One gang, alone on the cluster. `repetition`: the round; below 0 it warms up."""

    number: int
    nodes: int
    workload: str
    size: int
    approach: str
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`nodes` of each cluster, `sizes` of the gangs, `approaches` by name, `rounds` that count.

    `scheduler_binaries`: of approaches in `brought.BROUGHT`, absolute: a run can be gone on with from anywhere.
    """

    cluster: str = REAL
    nodes: Sequence[int] = (100,)
    sizes: Sequence[int] = (8, 64)
    approaches: Sequence[str] = USUAL
    rounds: int = 15
    warm_up: int = 2
    seed: int = 1
    cpu: str = "500m"
    scheduler_binaries: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises WrongUse."""
        for option, given, most in (("--nodes", self.nodes, MOST_NODES), ("--size", self.sizes, LARGEST)):
            for each in given:
                if not 1 <= each <= most:
                    raise WrongUse(f"{option} should be between 1 and {most}, found {each}")
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise WrongUse(f"--rounds should be between 1 and {_MOST_ROUNDS}, found {self.rounds}")
        for name in self.approaches:
            if name not in MADE:
                raise WrongUse(f"--approach {name}: there is none of that name; choose from {', '.join(MADE)}")
            if name in REAL_ONLY and self.cluster != REAL:
                raise WrongUse(f"--approach {name} is not on the embedded cluster: leave it or --embedded out")
        if self.scheduler_binaries and self.cluster != REAL:
            raise WrongUse("--scheduler-binary is for a real control plane: leave it or --embedded out")
        brought.check(self.scheduler_binaries, self.approaches)
        for name in self.approaches:
            if (base := base_of(name)) not in self.approaches:
                raise WrongUse(f"--approach {base} is missing: {name} is told as a ratio to it")

    def trials(self) -> Iterator[Trial]:
        numbers, order = count(), Random(self.seed)
        for nodes in self.nodes:
            for size in self.sizes:
                for repetition in range(-self.warm_up, self.rounds):
                    for approach in order.sample(list(self.approaches), len(self.approaches)):
                        yield Trial(next(numbers), nodes, SINGLE, size, approach, repetition)


QUICK = Plan(sizes=(8,), rounds=8, warm_up=1)
"""Some minutes."""
