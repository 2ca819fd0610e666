"""Soft constraints: a task has an ordered list of requirements, and runs once, under one of them.

Its pod is launched with one; if it is not bound after `wait` seconds, it is cancelled and launched with the next. After
the last, it begins again with the first, and waits twice as long in each round. So it runs in the end if one of them
stays possible for long enough. With a single alternative, it is never cancelled.

Guaranteed: a task never has two pods, and none after one was bound: a pod that is bound by then is not cancelled. Not
guaranteed: the best of the possible alternatives; places go to the pod that comes first. If the application dies after
a cancellation and before the next launch, the task begins with the first; waiting times restart, too.

On node loss: a task that ran there is over, and a notice says so; a waiting task is tried on the existing nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.common.backoff import doubled
from extender.core.names import DOMAIN
from extender.esl.base import CancelTask, Effect, Event, PodRequirement, StopTask
from extender.esl.runtime.launching import LaunchingEsl, Phase, earliest
from extender.esl.runtime.policy_esl import Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import PodUid
from extender.kube.quantities import Vector

Alternatives = Callable[[Task], Sequence[PodRequirement]]
"""The requirements that suit a task, best first; for one task always the same number."""

_MOST_ROUNDS = 6
"""After this many rounds, the wait no longer doubles."""


@dataclass(slots=True)
class _Try:
    pod: PodUid
    turn: int
    until: float


class Soft(LaunchingEsl):
    def __init__(self, name: str, alternatives: Alternatives, *, wait: float = 5.0, **more: str) -> None:
        super().__init__(name, **more)
        self.turn_label = f"turn.{DOMAIN}/{name}"
        """Its value on a pod: how many alternatives were tried before."""
        self._alternatives, self._wait = alternatives, wait
        self._turns: dict[str, int] = {}
        self._tries: dict[str, _Try] = {}

    def requires(self, task: Task) -> Vector:
        return {}

    def capacities(self, now: float) -> Wanted:
        return {}

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """As LaunchingEsl. Raises ValueError without alternatives, or if no pod can meet one."""
        if not (alternatives := self.alternatives(task)):
            raise ValueError(f"task {task.name!r} has no alternatives; give at least one, even if it requires nothing")
        for alternative in alternatives:
            self.would_require(task) & alternative
        if (known := self.launches.get(task.name)) is not None and not known.wanted:
            self._turns.pop(task.name, None)
        return super().ask(task, now)

    def attempt(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]] | None:
        turn = self._turns.get(task.name, 0)
        said, effects = self.choose(task, turn % len(self.alternatives(task)), now)
        return self.requirement(task) & said & PodRequirement({}, {self.turn_label: str(turn)}), effects

    def alternatives(self, task: Task) -> Sequence[PodRequirement]:
        """The alternatives of the task, best first."""
        return self._alternatives(task)

    def choose(self, task: Task, index: int, now: float) -> tuple[PodRequirement, list[Effect]]:
        """Uses this alternative from now on: its pod's requirement, and other effects."""
        return self.alternatives(task)[index], []

    def give_up(self, task: Task, index: int, now: float) -> list[Effect]:
        """The alternative was tried without effect."""
        return []

    def is_tired(self, task: Task, pod: Pod, now: float) -> bool:
        tried = self._tries.get(task.name)
        if tried is None or tried.pod != pod.uid:
            said = pod.labels.get(self.turn_label, "")
            turn = int(said) if said.isdecimal() else 0
            tried = self._tries[task.name] = _Try(pod.uid, turn, now + self._patience(task, turn))
            self._turns[task.name] = turn
        return now >= tried.until

    def cancelled(self, task: Task, now: float) -> list[Effect]:
        turn = self._turns.get(task.name, 0)
        self._turns[task.name] = turn + 1
        return self.give_up(task, turn % len(self.alternatives(task)), now)

    def refused(self, task: Task, change: CancelTask | StopTask, now: float) -> None:
        """The pod is bound, and that news will come; or else it is tried for as long again."""
        if (tried := self._tries.get(task.name)) is not None:
            tried.until = now + self._patience(task, tried.turn)

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        effects = super().decide(event, now)
        live = {name for name, launch in self.launches.items() if launch.phase is Phase.WANTED}
        for known in (self._turns, self._tries):
            for name in known.keys() - live:
                del known[name]
        return effects

    def due(self) -> float | None:
        waiting = (tried.until for tried in self._tries.values() if tried.until > self._now)
        return earliest(time for time in (super().due(), *waiting) if time is not None)

    def _patience(self, task: Task, turn: int) -> float:
        alternatives = len(self.alternatives(task))
        if alternatives == 1:
            return math.inf
        return doubled(self._wait, min(turn // alternatives, _MOST_ROUNDS), math.inf)
