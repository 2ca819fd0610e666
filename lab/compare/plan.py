"""Plan: a comparison's trials and their order; the same plan has the same trials and numbers.

Every round has every approach once, in an order drawn from the seed. So changes on the machine affect all approaches
alike. The first rounds of each set-up warm up; they are recorded, and count in no figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil
from pathlib import Path
from random import Random
from typing import NamedTuple

from extender.kube.names import CPU
from extender.kube.quantities import count as amount
from extender.shipped.errors import WrongUse
from lab.compare import external_schedulers, replay
from lab.compare.runs import DEFAULT_SAMPLING, NO_SAMPLING, REAL
from lab.compare.trials.approaches import MADE, REAL_ONLY, SETTINGS, USUAL
from lab.compare.trials.workloads import GANGS_OF_A_BURST, WORKLOADS, Shape, Work
from lab.compare.vocabulary import BURST, CONTENTION, SINGLE, TRACE, base_of
from lab.controlplane.nodes import NodeShape

MOST_NODES, LARGEST, MOST_GANGS = 5000, 2000, 10_000
SAMPLING = (DEFAULT_SAMPLING, NO_SAMPLING)
_MOST_ROUNDS = 1000


class Needs(NamedTuple):
    """The cluster of some set-ups. `of_trace`: its nodes are those of the plan's trace."""

    nodes: int
    sampling: str = DEFAULT_SAMPLING
    of_trace: bool = False


@dataclass(frozen=True, slots=True)
class SetUp:
    """What compared trials share."""

    nodes: int
    workload: str
    shape: Shape
    sampling: str = DEFAULT_SAMPLING

    @property
    def cluster(self) -> Needs:
        return Needs(self.nodes, self.sampling, self.workload == TRACE)

    def __str__(self) -> str:
        gangs = "a gang" if self.shape.gangs == 1 else f"{self.shape.gangs} gangs"
        sampling = "" if self.sampling == DEFAULT_SAMPLING else f", sampling {self.sampling}"
        return f"{self.nodes} nodes{sampling}, {self.workload}, {gangs} of {self.shape.size or 'several sizes'}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One approach in one round of a set-up. `repetition`: the round; below 0 it warms up."""

    number: int
    set_up: SetUp
    approach: str
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A comparison: `workloads` and `approaches` by name, `sizes` of gangs, `rounds` that count.

    `nodes`: of each cluster; `trace_nodes`: of those with a trace's nodes, none: all; `sampling`: of their schedulers;
    `cpu`: of a member if the workload does not set it; `trace`: a folder, for a workload that needs one;
    `scheduler_binaries`: of approaches in `external_schedulers.BROUGHT`; `service_config`: the service's settings, "":
    the usual ones. Paths are absolute, so that a run can be continued from any folder. `waiting`: the number of other
    gangs that wait meanwhile; `gangs`: the number of gangs in a burst.
    """

    cluster: str = REAL
    nodes: Sequence[int] = (100,)
    trace_nodes: Sequence[int] = ()
    sampling: Sequence[str] = (DEFAULT_SAMPLING,)
    workloads: Sequence[str] = (SINGLE,)
    sizes: Sequence[int] = (8, 64)
    approaches: Sequence[str] = USUAL
    rounds: int = 15
    warm_up: int = 2
    seed: int = 1
    cpu: str = "500m"
    trace: str = ""
    scheduler_binaries: Mapping[str, str] = field(default_factory=dict)
    service_config: str = ""
    waiting: int = 0
    gangs: int = GANGS_OF_A_BURST

    def check(self) -> None:
        """Raises WrongUse if the plan cannot be carried out."""
        nodes = (*self.nodes, *self.trace_nodes)
        for option, given, most in (("--nodes", nodes, MOST_NODES), ("--size", self.sizes, LARGEST)):
            for each in given:
                if not 1 <= each <= most:
                    raise WrongUse(f"{option} should be between 1 and {most}, found {each}")
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise WrongUse(f"--rounds should be between 1 and {_MOST_ROUNDS}, found {self.rounds}")
        if not 1 <= self.gangs <= MOST_GANGS:
            raise WrongUse(f"--gangs should be between 1 and {MOST_GANGS}, found {self.gangs}")
        if self.gangs != GANGS_OF_A_BURST and BURST not in self.workloads:
            raise WrongUse(f"--gangs is for --workload {BURST}: leave it out, or ask for that")
        for name in self.workloads:
            if name not in WORKLOADS:
                raise WrongUse(f"--workload {name}: there is none of that name; choose from {', '.join(WORKLOADS)}")
        for name in self.approaches:
            if name not in MADE:
                raise WrongUse(f"--approach {name}: there is none of that name; choose from {', '.join(MADE)}")
            if name in REAL_ONLY and self.cluster != REAL:
                raise WrongUse(f"--approach {name} is not on the embedded cluster: leave it or --embedded out")
        if self.scheduler_binaries and self.cluster != REAL:
            raise WrongUse("--scheduler-binary is for a real control plane: leave it or --embedded out")
        external_schedulers.check(self.scheduler_binaries, self.approaches)
        for workload in self.workloads:
            if not self.approaches_of(workload):
                has = ", ".join(each for each in MADE if each not in WORKLOADS[workload].leaves_out)
                raise WrongUse(f"--workload {workload} has none of these approaches: it is for {has}")
            for name in self.approaches_of(workload):
                if (base := base_of(name, workload)) not in self.approaches:
                    raise WrongUse(f"--approach {base} is missing: {name} is told as a ratio to it")
        for sampling in self.sampling:
            if sampling not in SAMPLING:
                raise WrongUse(f"--sampling {sampling}: choose from {', '.join(SAMPLING)}")
        if TRACE in self.workloads and not self.trace:
            raise WrongUse("--workload trace needs --trace FOLDER, or ESCHER_TRACES: see docs/comparison.md")
        if self.service_config and not Path(self.service_config).is_file():
            raise WrongUse(f"--service-config {self.service_config}: no file is there")
        for name in self.approaches:
            if self.service_config and name in SETTINGS:
                raise WrongUse(f"--service-config does not go with --approach {name}, which has settings of its own")
        self._check_waiting()
        for set_up in self.set_ups():
            self._check_room(set_up)

    def _check_room(self, set_up: SetUp) -> None:
        if set_up.workload == TRACE:
            if set_up.nodes > (there := len(replay.read(self.trace, None).nodes)):
                raise WrongUse(f"--nodes {set_up.nodes}: the trace {self.trace} has {there:,}")
            # Raises WrongUse if there is too little room.
            self.work(Trial(0, set_up, "", 0))
            return
        shape, largest = set_up.shape, WORKLOADS[set_up.workload].largest
        if largest is not None and shape.size > largest:
            raise WrongUse(f"--size {shape.size} is too large for {set_up.workload}: at most {largest}")
        places = pods_of_a_node(self.cpu_of(set_up.workload))
        if set_up.workload == CONTENTION and shape.gangs * shape.size <= ceil(room_of(shape) / places) * places:
            raise WrongUse(f"--size {shape.size} is too small for {CONTENTION}: its gangs all have room on one node")
        needed = shape.pool or ceil(room_of(shape) / places)
        if set_up.nodes < needed:
            raise WrongUse(f"--nodes {set_up.nodes} is too few for {set_up}: {needed} or more are needed")

    def _check_waiting(self) -> None:
        if not 0 <= self.waiting <= min(self.nodes):
            raise WrongUse(f"--waiting should be between 0 and --nodes, a node for each, found {self.waiting}")
        for workload in self.workloads:
            if self.waiting and workload != SINGLE:
                raise WrongUse(f"--waiting goes with --workload {SINGLE} alone, found {workload}")

    def approaches_of(self, workload: str) -> list[str]:
        """The plan's approaches that this workload has."""
        return [each for each in self.approaches if each not in WORKLOADS[workload].leaves_out]

    def set_ups(self) -> Iterator[SetUp]:
        """Set-ups of one cluster are together."""
        for sampling in self.sampling:
            for of_trace in (False, True):
                workloads = [each for each in self.workloads if (each == TRACE) is of_trace]
                for nodes in self._nodes(of_trace=of_trace) if workloads else ():
                    for workload in workloads:
                        for shape in WORKLOADS[workload].shapes(self.sizes):
                            yield SetUp(nodes, workload, self._whole(shape), sampling)

    def _whole(self, shape: Shape) -> Shape:
        return shape if shape.gangs else replace(shape, gangs=self.gangs)

    def _nodes(self, *, of_trace: bool) -> Sequence[int]:
        if not of_trace:
            return self.nodes
        return self.trace_nodes or (len(replay.read(self.trace, None).nodes),)

    def trials(self) -> Iterator[Trial]:
        """Trials of one set-up are together."""
        numbers, order = count(), Random(self.seed)
        for set_up in self.set_ups():
            chosen = self.approaches_of(set_up.workload)
            for repetition in range(-self.warm_up, self.rounds):
                for approach in order.sample(chosen, len(chosen)):
                    yield Trial(next(numbers), set_up, approach, repetition)

    def work(self, trial: Trial) -> Work:
        """The same for all approaches of a round, with sampling and without."""
        nodes, name, shape = trial.set_up.nodes, trial.set_up.workload, trial.set_up.shape
        random = Random(f"{self.seed} {name} {nodes} {shape.size} {shape.gangs} {trial.repetition}")
        draw = WORKLOADS[name].draw
        if draw is None:
            return replay.work_of(replay.read(self.trace, nodes), shape.gangs, random)
        return draw(shape, {"cpu": self.cpu_of(name)}, random)

    def cpu_of(self, workload: str) -> str:
        return WORKLOADS[workload].cpu or self.cpu


def room_of(shape: Shape) -> int:
    """The number of pods for which there must be room."""
    return shape.gangs * shape.size if shape.room is None else shape.room


def pods_of_a_node(cpu: str) -> int:
    """How many such members fit on a node of the usual shape, with a ghost beside each."""
    usual = NodeShape()
    return min(amount(CPU, usual.cpu) // amount(CPU, cpu), usual.pods // 2)


QUICK = Plan(sizes=(8,), rounds=8, warm_up=1)
"""Takes some minutes."""
