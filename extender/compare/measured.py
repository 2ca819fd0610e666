"""Measured: the samples of a run, by set-up and approach, and the figures that the report shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from extender.compare.figures import MEDIAN, Claim, Estimate, Sample, Statistic, Verdict, judged, ratio
from extender.compare.runs import DEFAULT_SAMPLING, EMBEDDED, REAL, STUCK, Recorded, TrialRow
from extender.compare.timeline import GangTimes, TrialTimes, times_of
from extender.compare.vocabulary import APPROACHES, BASE, EXTENDER, LIBSPACE, NATIVE, WORKLOADS, in_order

CLAIMS = (
    Claim("The extender places a gang sooner than LibSpace", EXTENDER, LIBSPACE),
    Claim("The extender places a gang sooner than Kubernetes' own pod group", EXTENDER, NATIVE),
    Claim("Goal: in at most 0.4 of LibSpace's time (2.5 times faster)", EXTENDER, LIBSPACE, 0.4, is_goal=True),
    Claim("Goal: in less than 0.70 of the time of a pod group", EXTENDER, NATIVE, 0.7, is_goal=True),
)


class Setting(NamedTuple):
    """What trials must share to be compared. `size` is 0 where gangs differ in it."""

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
        return f"{_many(self.nodes, 'node')}, {sampling}{embedded}"

    @property
    def what(self) -> str:
        """The gangs."""
        size = f"of {self.size}" if self.size else "of several sizes"
        return f"a gang {size}" if self.gangs == 1 else f"{self.gangs} gangs {size}"

    @property
    def short(self) -> str:
        """How many gangs, and how large."""
        return f"{self.gangs}\u00a0×\u00a0{self.size or 'several'}"

    @property
    def table(self) -> tuple[str, str, int, str]:
        """What is told in one table."""
        return self.workload, self.cluster, self.nodes, self.sampling


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Measured:
    """One approach in one set-up. Trials that warmed up are only counted."""

    setting: Setting
    approach: str
    trials: list[tuple[TrialRow, TrialTimes]] = field(default_factory=list)

    @property
    def stuck(self) -> int:
        """Trials that did not end in time."""
        return sum(trial.outcome == STUCK for trial, _ in self.trials)

    @property
    def gangs(self) -> list[GangTimes]:
        return [gang for _, times in self.trials for gang in times.gangs]

    def by_gang(self, value: Callable[[GangTimes], float]) -> Sample:
        return self._sample(lambda _, times: [value(gang) for gang in times.gangs])

    def by_trial(self, value: Callable[[TrialTimes], float | None]) -> Sample:
        return self._sample(lambda _, times: [found for found in (value(times),) if found is not None])

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
    def kept(self) -> Sample:
        """How far a policy other than gangs was kept, of trials in which that was judged."""
        return self._sample(lambda trial, _: [] if trial.kept is None else [trial.kept])

    @property
    def judged(self) -> list[float]:
        """The same, all rounds together."""
        return [value for values in self.kept.values() for value in values]

    def cost(self, *columns: str, each_pod: bool = False) -> Sample:
        """Of these columns together, for a gang or for each member; nothing of a trial that does not have them all."""

        def of(trial: TrialRow, times: TrialTimes) -> list[float]:
            many = sum(gang.size for gang in times.gangs) if each_pod else trial.gangs
            found: list[float | None] = [getattr(trial, column) for column in columns]
            known = [each for each in found if each is not None]
            return [sum(known) / max(1, many)] if len(known) == len(columns) else []

        return self._sample(of)

    @property
    def conflicts(self) -> Sample:
        """Binds that the service was asked for and refused, for each pod that was bound; of what goes through it."""
        return self._sample(
            lambda trial, times: [trial.binds / times.bound - 1] if trial.binds is not None and times.bound else []
        )

    def _sample(self, values: Callable[[TrialRow, TrialTimes], list[float]]) -> Sample:
        found: dict[int, list[float]] = {}
        for trial, times in self.trials:
            found.setdefault(trial.repetition, []).extend(values(trial, times))
        return found


Table = Mapping[Setting, Mapping[str, Measured]]


def measured(recorded: Recorded) -> Table:
    """By set-up and approach, both in the order in which they are told."""
    pods = recorded.pods_by_trial()
    found: dict[Setting, dict[str, Measured]] = {}
    for trial in recorded.trials:
        if trial.repetition < 0:
            continue
        setting = Setting(trial.workload, trial.cluster, trial.nodes, trial.sampling, trial.size, trial.gangs)
        mine = found.setdefault(setting, {}).setdefault(trial.approach, Measured(setting, trial.approach))
        mine.trials.append((trial, times_of(trial, pods[trial.trial])))
    workloads = in_order({setting.workload for setting in found}, WORKLOADS)
    return {
        setting: {name: found[setting][name] for name in in_order(set(found[setting]), APPROACHES)}
        for setting in sorted(found, key=lambda each: (workloads.index(each.workload), each))
    }


def ratio_of(
    row: Mapping[str, Measured],
    approach: str,
    base: str,
    sample: Callable[[Measured], Sample] = lambda each: each.to_bound,
    statistic: Statistic = MEDIAN,
) -> Estimate | None:
    """None where either was not measured."""
    if approach not in row or base not in row:
        return None
    return ratio(sample(row[approach]), sample(row[base]), statistic)


class Judged(NamedTuple):
    claim: Claim
    setting: Setting
    found: Estimate
    verdict: Verdict


def judge(table: Table, claims: Sequence[Claim] = CLAIMS) -> list[Judged]:
    """Each claim in each set-up that it is about and in which both its approaches were measured."""
    found = []
    for claim in claims:
        for setting, row in table.items():
            if (setting.workload, setting.sampling) == (claim.workload, claim.sampling):
                compared = ratio_of(row, claim.approach, claim.base)
                if compared is not None:
                    found.append(Judged(claim, setting, compared, judged(claim, compared)))
    return found


def contradicted(found: Sequence[Judged]) -> list[Judged]:
    """What we say, and a real control plane says otherwise. Times of the embedded cluster are its own."""
    return [
        each
        for each in found
        if each.verdict is Verdict.FLIPS and not each.claim.is_goal and each.setting.cluster == REAL
    ]


class NotKept(NamedTuple):
    """In so many `broken` of the trials that were judged the policy was not kept all the time, or by every group."""

    setting: Setting
    approach: str
    broken: int
    judged: int


def not_kept(table: Table) -> list[NotKept]:
    """Policies other than gangs that were not kept by those who are to keep them: all but pods that know of none."""
    found = []
    for setting, row in table.items():
        for name, mine in row.items():
            broken = sum(value < 1 for value in mine.judged)
            if broken and name != BASE:
                found.append(NotKept(setting, name, broken, len(mine.judged)))
    return found
