"""Occupancy: what the pods of a trial held of the room, what of it was of use, and when nothing could go on. Pure.

Room is used while a gang is whole and runs, or an ordinary pod runs. It is held in vain by gangs that are not whole,
and by ghosts. What lies between, from the moment when all of a gang is bound until it runs, and while it ends, is up to
the nodes. What a ledger or a scheduler's own memory reserves before any pod is bound is not seen here.

A deadlock is a span in which two gangs or more that are asked for are not whole, room is held in vain, and nothing is
there whose end would free any: neither a gang that is bound as a whole, nor an ordinary pod that was going to end. Each
Binding begins it anew, for who is still being placed is slow, and not stuck. It lasts longer than a gang may be bound
in part (`lasting`, for the largest of the trial): shorter ones are on the way to the next state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from lab.compare.runs import ORDINARY, STUCK, PodRow, TrialRow
from lab.compare.timeline import TrialTimes, lasting

_MILLI = 1000
"""CPU is counted in thousandths, so that what comes and goes leaves nothing."""

_COUNTED = ("held", "kept", "used", "frees", "waiting")


@dataclass(frozen=True, slots=True)
class Level:
    """From `since` on: CPU that bound pods `held`; what of it those `kept` that were whole, or ordinary; and what these
    `used`. Whether there is anything that `frees` room, and how many gangs are `waiting`."""

    since: float
    held: float
    kept: float
    used: float
    frees: bool
    waiting: int

    @property
    def between(self) -> float:
        """Not yet, or not any more, used."""
        return max(0.0, self.kept - self.used)

    @property
    def in_vain(self) -> float:
        return max(0.0, self.held - self.kept)

    @property
    def is_stalled(self) -> bool:
        return self.waiting > 1 and self.in_vain > 0 and not self.frees


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`levels` from the beginning on; the last one is the end of the trial, and holds nothing. `used`, `between` and
    `in_vain` in CPU-seconds. `deadlocks`: how long each was until it was resolved, infinite where it was not;
    `deadlocked`: seconds of the trial in which there was one."""

    levels: Sequence[Level]
    used: float
    between: float
    in_vain: float
    deadlocks: Sequence[float]
    deadlocked: float


def occupancy_of(trial: TrialRow, pods: Sequence[PodRow], times: TrialTimes) -> Occupancy | None:
    """None where it was not recorded what pods held, or for how long the trial was."""
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
    # Held, kept and used in thousandths, how many would free room, how many wait.
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
    """In which gangs block each other, and no pod is bound."""
    since, held = None, 0.0
    for level in levels:
        if since is not None and (not level.is_stalled or level.held > held):
            yield since, level.since
            since = None
        if since is None and level.is_stalled:
            since = level.since
        held = level.held
