"""Occupancy: the room that a trial's pods held, how much of it was used, and deadlocks. Pure.

Room is used while a gang is whole and runs, or an ordinary pod runs. It is held in vain by gangs that are not whole,
and by ghosts. The rest depends on the nodes: from the binding of the whole gang until it runs, and while it ends. Room
that a ledger or a scheduler's own memory reserves before any pod is bound is not visible here.

In a deadlock, two or more requested gangs are not whole, and room is held in vain. No whole gang, and no ordinary pod
that was going to end, exists whose end would free room. A Binding restarts its time, because a gang that is being
placed is slow, not stuck. It lasts longer than `lasting` of the largest gang: shorter spans lead to the next state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from lab.compare.reporting.timeline import TrialTimes, lasting
from lab.compare.runs import ORDINARY, STUCK, PodRow, TrialRow

_MILLI = 1000
"""CPU is counted in thousandths, so that sums return to exactly zero."""

_COUNTED = ("held", "kept", "used", "frees", "waiting")


@dataclass(frozen=True, slots=True)
class Level:
    """From `since` on: CPU `held` by bound pods, `kept` by whole gangs and ordinary pods, `used`.

    `frees`: whether the end of a pod or gang would free room; `waiting`: the number of waiting gangs."""

    since: float
    held: float
    kept: float
    used: float
    frees: bool
    waiting: int

    @property
    def between(self) -> float:
        """CPU that is not used yet, or not any more."""
        return max(0.0, self.kept - self.used)

    @property
    def in_vain(self) -> float:
        return max(0.0, self.held - self.kept)

    @property
    def is_stalled(self) -> bool:
        return self.waiting > 1 and self.in_vain > 0 and not self.frees


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The room held in a trial (CPU-seconds, by kind). The last of `levels` ends it, without pods.

    `deadlocks`: seconds of each until it was resolved, or infinite. `deadlocked`: seconds of the trial with one."""

    levels: Sequence[Level]
    used: float
    between: float
    in_vain: float
    deadlocks: Sequence[float]
    deadlocked: float


def occupancy_of(trial: TrialRow, pods: Sequence[PodRow], times: TrialTimes) -> Occupancy | None:
    """None if the pods' holdings or the trial's duration were not recorded."""
    if trial.seconds is None or any(pod.holds is None for pod in pods if pod.bound is not None):
        return None
    levels = list(_levels(trial.seconds, pods, times))
    largest = max((gang.size for gang in times.gangs), default=0)
    stalls = [(begin, end) for begin, end in _stalls(levels) if end - begin > lasting(largest)]

    def total(of: Callable[[Level], float]) -> float:
        return sum((after.since - level.since) * of(level) for level, after in pairwise(levels))

    return Occupancy(
        levels,
        used=total(lambda level: level.used),
        between=total(lambda level: level.between),
        in_vain=total(lambda level: level.in_vain),
        deadlocks=[inf if trial.outcome == STUCK and end >= trial.seconds else end - begin for begin, end in stalls],
        deadlocked=sum(end - begin for begin, end in stalls),
    )


def _levels(until: float, pods: Sequence[PodRow], times: TrialTimes) -> Iterator[Level]:
    # Held, kept and used in thousandths, the number of pods that would free room, the number of waiting gangs.
    changes: dict[float, list[int]] = {0.0: [0] * 5, until: [0] * 5}

    def change(begin: float | None, end: float | None, **by: int) -> None:
        if begin is not None and begin < until and (end is None or end > begin):
            for moment, sign in ((begin, 1), (inf if end is None else end, -1)):
                if moment < until:
                    found = changes.setdefault(max(0.0, moment), [0] * 5)
                    for number, name in enumerate(_COUNTED):
                        found[number] += sign * by.get(name, 0)

    gangs = {gang.gang: gang for gang in times.gangs}
    for pod in pods:
        cpu = _milli(pod.cpu)
        change(pod.bound, pod.gone, held=_milli(pod.holds))
        if pod.role == ORDINARY:
            change(pod.bound, pod.gone, kept=cpu, frees=int(pod.gone is not None and pod.gone <= until))
            change(pod.running, pod.gone, used=cpu)
        elif pod.gang and pod.bound is not None:
            gone = inf if pod.gone is None else pod.gone
            for begin, end in gangs[pod.gang].kept:
                change(max(begin, pod.bound), min(end, gone), kept=cpu, frees=1)
            for begin, end in gangs[pod.gang].ran:
                change(max(begin, pod.bound), min(end, gone), used=cpu)
    for gang in times.gangs:
        change(gang.asked, gang.again, waiting=1)
    totals = [0] * 5
    for moment in sorted(changes):
        totals = [total + more for total, more in zip(totals, changes[moment], strict=True)]
        held, kept, used, frees, waiting = totals
        if moment < until:
            yield Level(moment, held / _MILLI, kept / _MILLI, used / _MILLI, frees > 0, waiting)
    yield Level(until, 0.0, 0.0, 0.0, frees=False, waiting=0)


def _milli(cpu: float | None) -> int:
    return round((cpu or 0.0) * _MILLI)


def _stalls(levels: Sequence[Level]) -> Iterator[tuple[float, float]]:
    """Spans in which gangs block each other and no pod is bound."""
    since, held = None, 0.0
    for level in levels:
        if since is not None and (not level.is_stalled or level.held > held):
            yield since, level.since
            since = None
        if since is None and level.is_stalled:
            since = level.since
        held = level.held
