"""Timeline: the times of a trial's gangs, from its pods. Pure; seconds since the trial began.

A gang is whole while as many of its pods as it has members are bound, or running, at once. Latency begins when the gang
is requested. The time of what never came is infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from lab.compare.runs import DONE, GHOST, ORDINARY, PodRow, TrialRow, Unreadable

Span = tuple[float, float]
LASTING, LASTING_PER_MEMBER = 1.0, 0.02


def lasting(size: int) -> float:
    """Seconds after which a gang of that size counts as left bound in part: Bindings take time."""
    return max(LASTING, LASTING_PER_MEMBER * size)


@dataclass(frozen=True, slots=True)
class GangTimes:
    """`bound`, `running`: when it was whole first; `partly`: seconds bound in part.

    `again`: the start of its last whole run until its end, later if members were lost. `ran`: while all of it ran.
    `kept`: while all of it was bound, and after the last time also its rest while it ended."""

    gang: str
    size: int
    asked: float
    bound: float
    running: float
    partly: float
    again: float = inf
    ran: Sequence[Span] = ()
    kept: Sequence[Span] = ()

    @property
    def to_bound(self) -> float:
        return self.bound - self.asked

    @property
    def to_running(self) -> float:
        return self.running - self.asked

    @property
    def to_again(self) -> float:
        return self.again - self.asked

    @property
    def was_left_in_part(self) -> bool:
        return self.partly > lasting(self.size)


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """`ordinary`: seconds from the request of each ordinary pod to its binding.

    `all_done`: from the first request until all gangs and ordinary pods had been running. `bound`: the bound pods
    without ghosts. Rates are until the last was bound, or the trial was given up; None if that time is not known."""

    gangs: Sequence[GangTimes]
    ordinary: Sequence[float]
    all_done: float
    pods_a_second: float | None
    gangs_a_second: float | None
    bound: int = 0


def times_of(trial: TrialRow, pods: Sequence[PodRow]) -> TrialTimes:
    """A gang without pods, or that never ran in a stuck trial, is unplaced. Raises Unreadable."""
    by_gang: dict[str, list[PodRow]] = {}
    for pod in pods:
        if pod.gang:
            by_gang.setdefault(pod.gang, []).append(pod)
    gangs = [_gang(trial, name, mine) for name, mine in by_gang.items()]
    unseen = trial.gangs - len(gangs)
    if trial.outcome == DONE and unseen > 0:
        raise Unreadable(f"trial {trial.trial} is done, and {unseen} of its {trial.gangs} gangs have no pods")
    gangs += [GangTimes("", trial.size, 0.0, inf, inf, 0.0)] * unseen
    ordinary = [pod for pod in pods if pod.role == ORDINARY]
    asked = [gang.asked for gang in gangs] + [_asked([pod]) for pod in ordinary]
    began, until = min(asked, default=0.0), end_of(trial)
    ran = [gang.running for gang in gangs] + [_until(pod.running, until) for pod in ordinary]
    bound = [pod.bound for pod in pods if pod.bound is not None and pod.bound <= until and pod.role != GHOST]
    whole = [gang.bound for gang in gangs if gang.bound < inf]
    return TrialTimes(
        gangs=gangs,
        ordinary=[_until(pod.bound, until) - _asked([pod]) for pod in ordinary],
        all_done=max(ran, default=inf) - began,
        pods_a_second=_rate(bound, began, max(bound, default=None) if trial.outcome == DONE else trial.seconds),
        gangs_a_second=_rate(whole, began, max(whole, default=None) if trial.outcome == DONE else trial.seconds),
        bound=len(bound),
    )


def end_of(trial: TrialRow) -> float:
    """When it was given up, and the clearing up began; infinity if the trial is done."""
    return inf if trial.outcome == DONE or trial.seconds is None else trial.seconds


def _gang(trial: TrialRow, name: str, pods: list[PodRow]) -> GangTimes:
    size = trial.size or len(pods)
    until = end_of(trial)
    bound = _steps(((pod.bound, pod.gone) for pod in pods), until)
    ran = _at_least(size, _steps(((pod.running, pod.gone) for pod in pods), until), until)
    kept = _at_least(size, bound, until)
    # Nothing is left of a gang that has ended; the others are left of one that has lost members.
    has_ended = trial.outcome == DONE or not bound or not bound[-1][1]
    if kept and has_ended:
        kept[-1] = (kept[-1][0], inf)
    is_whole = bool(ran) and (has_ended or ran[-1][1] >= until)
    return GangTimes(
        name,
        size,
        asked=_asked(pods),
        bound=kept[0][0] if kept and (ran or trial.outcome == DONE) else inf,
        running=ran[0][0] if ran else inf,
        partly=_partly(bound, size, until, has_ended=has_ended),
        again=ran[-1][0] if is_whole else inf,
        ran=ran,
        kept=kept,
    )


def _asked(pods: Sequence[PodRow]) -> float:
    asked = [pod.asked for pod in pods if pod.asked is not None]
    created = [pod.created for pod in pods if pod.created is not None]
    return min(asked or created or [0.0])


def _until(moment: float | None, until: float) -> float:
    return inf if moment is None or moment > until else moment


def _steps(spans: Iterable[tuple[float | None, float | None]], until: float) -> list[tuple[float, int]]:
    """The number of spans open at once, from each moment on, until `until`."""
    moments: list[tuple[float, int]] = []
    for begin, end in spans:
        if begin is not None and begin <= until:
            moments.append((begin, 1))
            if end is not None and end <= until:
                moments.append((end, -1))
    steps, open_now = list[tuple[float, int]](), 0
    # At one moment, beginnings are counted before ends.
    for moment, change in sorted(moments, key=lambda each: (each[0], -each[1])):
        open_now += change
        steps.append((moment, open_now))
    return steps


def _at_least(size: int, steps: Sequence[tuple[float, int]], until: float) -> list[Span]:
    """The spans with `size` or more."""
    spans, since = list[Span](), None
    for moment, number in steps:
        if number >= size and since is None:
            since = moment
        elif number < size and since is not None:
            spans.append((since, moment))
            since = None
    return spans if since is None else [*spans, (since, until)]


def _partly(steps: Sequence[tuple[float, int]], size: int, until: float, *, has_ended: bool) -> float:
    """The seconds with some, but not all; without the end of a whole one that `has_ended`."""
    total, after_whole, last, open_now, was_whole = 0.0, 0.0, 0.0, 0, False
    for moment, number in [*steps, *([(until, 0)] if steps and until < inf else [])]:
        if 0 < open_now < size:
            after_whole += moment - last
        if number >= size:
            total, after_whole, was_whole = total + after_whole, 0.0, True
        open_now, last = number, moment
    return total if was_whole and has_ended else total + after_whole


def _rate(moments: Sequence[float], began: float, end: float | None) -> float | None:
    """None if the duration is not known."""
    took = 0.0 if end is None else end - began
    return len(moments) / took if took > 0 else None
