"""Timeline: what the pods of a trial say of its gangs. Pure; seconds since the trial began.

A gang is whole from the moment at which as many of its pods as it has members are bound, or running, at once. Latency
begins when the gang is asked for. What never came has the time infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from extender.compare.runs import DONE, GHOST, PodRow, TrialRow, Unreadable


@dataclass(frozen=True, slots=True)
class GangTimes:
    """`bound` and `running`: when it was whole. `partly`: how long some of it was bound, and not all, until it was."""

    gang: str
    size: int
    asked: float
    bound: float
    running: float
    partly: float

    @property
    def to_bound(self) -> float:
        return self.bound - self.asked

    @property
    def to_running(self) -> float:
        return self.running - self.asked


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """`all_done`: seconds from the first ask until all gangs were running. `bound`: how many pods were, without ghosts.
    Rates are until the last was bound; None where there is nothing to count."""

    gangs: Sequence[GangTimes]
    all_done: float
    pods_a_second: float | None
    gangs_a_second: float | None
    bound: int = 0


def times_of(trial: TrialRow, pods: Sequence[PodRow]) -> TrialTimes:
    """A gang that nothing was seen of counts as one that was never placed. In a trial that was stuck a gang counts as
    placed only if it was running. Raises Unreadable if the trial is done and pods are missing."""
    by_gang: dict[str, list[PodRow]] = {}
    for pod in pods:
        if pod.gang:
            by_gang.setdefault(pod.gang, []).append(pod)
    gangs = [_gang(trial, name, mine) for name, mine in by_gang.items()]
    unseen = trial.gangs - len(gangs)
    if trial.outcome == DONE and unseen > 0:
        raise Unreadable(f"trial {trial.trial} is done, and {unseen} of its {trial.gangs} gangs have no pods")
    gangs += [GangTimes("", trial.size, 0.0, inf, inf, 0.0)] * unseen
    began = min((gang.asked for gang in gangs), default=0.0)
    bound = [pod.bound for pod in pods if pod.bound is not None and pod.role != GHOST]
    whole = [gang.bound for gang in gangs if gang.bound < inf]
    return TrialTimes(
        gangs=gangs,
        all_done=max((gang.running for gang in gangs), default=inf) - began,
        pods_a_second=_rate(bound, began),
        gangs_a_second=_rate(whole, began),
        bound=len(bound),
    )


def _gang(trial: TrialRow, name: str, pods: list[PodRow]) -> GangTimes:
    size = trial.size or len(pods)
    # What comes after that is the clearing up.
    until = inf if trial.seconds is None else trial.seconds
    bound, partly = _whole(((pod.bound, pod.gone) for pod in pods), size, until)
    running, _ = _whole(((pod.running, pod.gone) for pod in pods), size, until)
    if trial.outcome != DONE and running == inf:
        bound = inf
    asked = [pod.asked for pod in pods if pod.asked is not None]
    created = [pod.created for pod in pods if pod.created is not None]
    return GangTimes(name, size, min(asked or created or [0.0]), bound, running, partly)


def _whole(spans: Iterable[tuple[float | None, float | None]], size: int, until: float) -> tuple[float, float]:
    """When first so many spans were open at once; and how long before, but not after `until`, some were."""
    moments: list[tuple[float, int]] = []
    for begin, end in spans:
        if begin is not None:
            moments.append((begin, 1))
            if end is not None:
                moments.append((end, -1))
    open_now, partly, last = 0, 0.0, 0.0
    # At one moment those who come are counted first.
    for moment, change in sorted(moments, key=lambda each: (each[0], -each[1])):
        if open_now:
            partly += max(0.0, min(moment, until) - last)
        open_now, last = open_now + change, moment
        if open_now >= size:
            return moment, partly
    if open_now and last < until < inf:
        partly += until - last
    return inf, partly


def _rate(moments: Sequence[float], began: float) -> float | None:
    took = max(moments, default=began) - began
    return len(moments) / took if took > 0 else None
