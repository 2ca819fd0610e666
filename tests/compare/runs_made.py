"""Runs that nobody has run: trials and pods with what a test does not care about filled in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.compare.runs import DONE, ORDINARY, STUCK, PodRow, Recorded, Recorder, Run, TrialRow

RUN = Run(
    command="escher compare --nodes 100 --out results/a",
    seed=7,
    began="2026-11-23T12:00:00Z",
    machine={"cores": 2},
    versions={"kubernetes": "v1.36.1"},
    plan={"sizes": [8, 64]},
)
TRIAL = TrialRow(
    trial=1,
    cluster="real",
    nodes=100,
    sampling="default",
    workload="single",
    size=2,
    gangs=1,
    approach="extender",
    repetition=0,
    outcome=DONE,
    seconds=1.0,
)


def pod(number: int, bound: float | None = None, *, gang: str = "a", trial: int = 1, **more: Any) -> PodRow:
    """Which runs as soon as it is bound."""
    usual = PodRow(trial=trial, gang=gang, pod=f"{gang}-{number}", bound=bound, running=bound, asked=0.0)
    return replace(usual, **more)


def contended(took: Mapping[str, float], *, rounds: int = 8, reserved: float | None = 0.5) -> Recorded:
    """Of each approach two gangs of 2 that have a member each bound, for so many seconds in which neither runs; then
    both are whole, for a second. An ordinary pod runs when they have ended."""
    trials, pods = list[TrialRow](), list[PodRow]()
    for round_ in range(rounds):
        for name, waits in took.items():
            number, late = len(trials) + 1, waits + 0.05 * round_
            trials.append(
                replace(
                    TRIAL, trial=number, workload="contention", gangs=2, approach=name, repetition=round_,
                    seconds=late + 3.0, reserved=reserved,
                )
            )  # fmt: skip
            for gang, first in (("a", 0.01), ("b", 0.02)):
                for member, bound in enumerate((first, late)):
                    lives: dict[str, Any] = {"gone": late + 1.0, "cpu": 2.0, "holds": 2.0}
                    pods.append(pod(member, bound, gang=gang, trial=number, **lives))
            alone = replace(pods[-1], gang="", pod="alone", role=ORDINARY, bound=late + 1.5, running=late + 1.5)
            pods.append(replace(alone, gone=late + 2.5))
    return Recorded(RUN, trials, pods)


def placed(trial: TrialRow, took: float, first: float | None = None) -> list[PodRow]:
    """A gang whose first member is bound at `first` and whose others are bound when it `took` that long."""
    return [pod(n, took if n or first is None else first, trial=trial.trial) for n in range(trial.size)]


def compared(
    took: Mapping[str, float],
    *,
    sizes: Sequence[int] = (8,),
    nodes: Sequence[int] = (100,),
    rounds: int = 12,
    noise: float = 0.1,
    stuck: Mapping[str, int] | None = None,
    seed: int = 1,
    base: TrialRow = TRIAL,
) -> Recorded:
    """Gangs that took so many seconds by approach, more or less; of each approach so many of the last are stuck."""
    chance, trials, pods = random.Random(seed), list[TrialRow](), list[PodRow]()
    for many in nodes:
        for size in sizes:
            for round_ in range(-1, rounds):
                for name, seconds in took.items():
                    number, late = len(trials) + 1, (stuck or {}).get(name, 0) > rounds - 1 - round_
                    trial = replace(
                        base, trial=number, nodes=many, size=size, approach=name, repetition=round_,
                        outcome=STUCK if late else DONE, seconds=30.0 if late else 1.0, writes=2.0 * size,
                        bytes=1024.0 * size, attempts=1.5 * size, cpu_service=0.01, cpu_scheduler=0.02,
                        cpu_apiserver=0.03,
                    )  # fmt: skip
                    trials.append(trial)
                    pods += placed(trial, seconds * chance.lognormvariate(0, noise), 0.001)[: size - late]
    return Recorded(RUN, trials, pods)


def written(folder: Path, recorded: Recorded) -> Path:
    recorder, pods = Recorder.begin(folder, recorded.run), recorded.pods_by_trial()
    for trial in recorded.trials:
        recorder.add(trial, pods[trial.trial])
    return folder
