"""Measured: the samples of a run, by set-up and approach, and the figures of the report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from lab.compare.reporting.figures import (
    MEDIAN,
    Estimate,
    Sample,
    Statistic,
    mean,
    ratio,
)
from lab.compare.reporting.occupancy import Occupancy, occupancy_of
from lab.compare.reporting.timeline import GangTimes, TrialTimes, times_of
from lab.compare.reporting.wording import many
from lab.compare.runs import DEFAULT_SAMPLING, EMBEDDED, STUCK, Recorded, TrialRow
from lab.compare.vocabulary import (
    APPROACHES,
    BY_LEDGER,
    SINGLE,
    WORKLOADS,
    in_order,
)


class Setting(NamedTuple):
    """What trials must share to be compared. `size` is 0 if gangs differ in it."""

    workload: str
    cluster: str
    nodes: int
    sampling: str
    size: int
    gangs: int

    @property
    def where(self) -> str:
        """Without workload and size."""
        sampling = "default sampling" if self.sampling == DEFAULT_SAMPLING else f"sampling {self.sampling}"
        embedded = ", embedded cluster" if self.cluster == EMBEDDED else ""
        return f"{many(self.nodes, 'node')}, {sampling}{embedded}"

    @property
    def what(self) -> str:
        """The gangs."""
        size = f"of {self.size}" if self.size else "of several sizes"
        return f"a gang {size}" if self.gangs == 1 else f"{self.gangs} gangs {size}"

    @property
    def told(self) -> str:
        """All of it; a single gang is the usual workload, which is not named."""
        return f"{self.where}, {self.what}" + ("" if self.workload == SINGLE else f", {self.workload}")

    @property
    def short(self) -> str:
        """How many gangs, and how large."""
        return f"{self.gangs}\u00a0×\u00a0{self.size or 'several'}"

    @property
    def table(self) -> tuple[str, str, int, str]:
        """The key of set-ups that share a table."""
        return self.workload, self.cluster, self.nodes, self.sampling


class Seen(NamedTuple):
    """A trial and its pods' times; `room`: None if it was not recorded what they held."""

    trial: TrialRow
    times: TrialTimes
    room: Occupancy | None

    @property
    def pods(self) -> int:
        """The pods that were requested: members and ordinary ones."""
        return sum(gang.size for gang in self.times.gangs) + len(self.times.ordinary)

    @property
    def in_vain(self) -> float | None:
        """CPU-seconds held in vain by bound pods, and reserved by a ledger; None if unknown.

        Infinite in a stuck trial, because the comparison chooses how long it watches that."""
        trial = self.trial
        if self.room is not None and trial.outcome == STUCK:
            return inf
        if self.room is None or (trial.reserved is None and trial.approach in BY_LEDGER):
            return None
        return self.room.in_vain + (trial.reserved or 0.0)

    @property
    def conflicts(self) -> float | None:
        """Refused binds for each pod that was bound."""
        binds, bound = self.trial.binds, self.times.bound
        return None if binds is None or not bound else binds / bound - 1


@dataclass(frozen=True)
class Measured:
    """One approach in one set-up; figures are of `trials`, faults are sought in `warm_up` too."""

    setting: Setting
    approach: str
    trials: list[Seen] = field(default_factory=list)
    warm_up: list[Seen] = field(default_factory=list)

    @property
    def all_trials(self) -> list[Seen]:
        return [*self.warm_up, *self.trials]

    @property
    def stuck(self) -> int:
        """Trials that did not end in time."""
        return sum(each.trial.outcome == STUCK for each in self.trials)

    @cached_property
    def has_ordinary(self) -> bool:
        """Whether ordinary pods were requested beside gangs; costs do not separate these."""
        return any(each.times.ordinary for each in self.trials)

    @property
    def gangs(self) -> list[GangTimes]:
        return [gang for each in self.trials for gang in each.times.gangs]

    def by_gang(self, value: Callable[[GangTimes], float]) -> Sample:
        return self._sample(lambda each: [value(gang) for gang in each.times.gangs])

    def by_trial(self, value: Callable[[TrialTimes], float | None]) -> Sample:
        return self._sample(lambda each: _known(value(each.times)))

    def of_room(self, value: Callable[[Occupancy], float]) -> Sample:
        return self._sample(lambda each: [] if each.room is None else [value(each.room)])

    @cached_property
    def to_bound(self) -> Sample:
        return self.by_gang(lambda gang: gang.to_bound)

    @cached_property
    def to_running(self) -> Sample:
        return self.by_gang(lambda gang: gang.to_running)

    @cached_property
    def partly(self) -> Sample:
        return self.by_gang(lambda gang: gang.partly)

    @cached_property
    def to_again(self) -> Sample:
        return self.by_gang(lambda gang: gang.to_again)

    @cached_property
    def ordinary(self) -> Sample:
        """Seconds until ordinary pods were bound."""
        return self._sample(lambda each: list(each.times.ordinary))

    @cached_property
    def all_done(self) -> Sample:
        return self.by_trial(lambda times: times.all_done)

    @cached_property
    def used(self) -> Sample:
        return self.of_room(lambda room: room.used)

    @cached_property
    def between(self) -> Sample:
        return self.of_room(lambda room: room.between)

    @cached_property
    def pods_in_vain(self) -> Sample:
        return self.of_room(lambda room: room.in_vain)

    @cached_property
    def reserved(self) -> Sample:
        """Of approaches with the service's ledger; other reservations are not visible."""
        return self._sample(lambda each: _known(each.trial.reserved) if self.approach in BY_LEDGER else [])

    @cached_property
    def in_vain(self) -> Sample:
        """CPU-seconds held in vain by pods and in the ledger."""
        return self._sample(lambda each: _known(each.in_vain))

    @cached_property
    def deadlocks(self) -> Sample:
        """The seconds that each lasted."""
        return self._sample(lambda each: [] if each.room is None else list(each.room.deadlocks))

    @cached_property
    def deadlocked(self) -> Sample:
        """Seconds of each trial in which there was a deadlock."""
        return self.of_room(lambda room: room.deadlocked)

    @cached_property
    def kept(self) -> Sample:
        """The share to which a policy other than gangs was kept, in judged trials."""
        return self._sample(lambda each: _known(each.trial.kept))

    @property
    def judged(self) -> list[float]:
        """The values of `kept`, all rounds together."""
        return [value for values in self.kept.values() for value in values]

    def cost(self, *columns: str, each_pod: bool = False) -> Sample:
        """The sum of these columns per requested pod, else per gang, else per trial.

        It is per trial if there were ordinary pods too. A trial without all of the columns has no value."""

        def of(each: Seen) -> list[float]:
            many = each.pods if each_pod else 1 if self.has_ordinary else each.trial.gangs
            found: list[float | None] = [getattr(each.trial, column) for column in columns]
            known = [value for value in found if value is not None]
            return [sum(known) / max(1, many)] if len(known) == len(columns) else []

        return self._sample(of)

    @property
    def conflicts(self) -> Sample:
        """Binds that the service refused, for each bound pod, if the approach uses the service."""
        return self._sample(lambda each: _known(each.conflicts))

    def _sample(self, values: Callable[[Seen], list[float]]) -> Sample:
        found: dict[int, list[float]] = {}
        for each in self.trials:
            found.setdefault(each.trial.repetition, []).extend(values(each))
        return found


def _known(value: float | None) -> list[float]:
    return [] if value is None else [value]


FIGURES: Mapping[str, tuple[Callable[[Measured], Sample], Statistic]] = {
    "latency": (lambda each: each.to_bound, MEDIAN),
    "whole_again": (lambda each: each.to_again, MEDIAN),
    "ordinary": (lambda each: each.ordinary, MEDIAN),
    "all_done": (lambda each: each.all_done, MEDIAN),
    "in_vain": (lambda each: each.in_vain, mean),
}
"""The figures by which approaches are compared, and which claims are about."""
Table = Mapping[Setting, Mapping[str, Measured]]


def measured(recorded: Recorded) -> Table:
    """By set-up and approach, both in the report's order; each has a trial that counts."""
    pods = recorded.pods_by_trial()
    found: dict[Setting, dict[str, Measured]] = {}
    for trial in recorded.trials:
        setting = Setting(trial.workload, trial.cluster, trial.nodes, trial.sampling, trial.size, trial.gangs)
        mine = found.setdefault(setting, {}).setdefault(trial.approach, Measured(setting, trial.approach))
        times = times_of(trial, pods[trial.trial])
        trials = mine.warm_up if trial.repetition < 0 else mine.trials
        trials.append(Seen(trial, times, occupancy_of(trial, pods[trial.trial], times)))
    counted = {setting: {name for name, mine in row.items() if mine.trials} for setting, row in found.items()}
    workloads = in_order({setting.workload for setting in found}, WORKLOADS)
    return {
        setting: {name: found[setting][name] for name in in_order(counted[setting], APPROACHES)}
        for setting in sorted(found, key=lambda each: (workloads.index(each.workload), each))
        if counted[setting]
    }


def ratio_of(
    row: Mapping[str, Measured],
    approach: str,
    base: str,
    sample: Callable[[Measured], Sample] = lambda each: each.to_bound,
    statistic: Statistic = MEDIAN,
) -> Estimate | None:
    """None if either was not measured."""
    if approach not in row or base not in row:
        return None
    return ratio(sample(row[approach]), sample(row[base]), statistic)


def compared(row: Mapping[str, Measured], approach: str, base: str, figure: str = "latency") -> Estimate | None:
    """The ratio of one of FIGURES; None if either was not measured."""
    return ratio_of(row, approach, base, *FIGURES[figure])
