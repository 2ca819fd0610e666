"""Launching: the base of policies that launch the pods of their tasks themselves.

    asked for -> LaunchTask -> waits -> runs -> over
                    ^            |        |
                    +- CancelTask+        +- StopTask: from the start, where the policy says so

A task's pod is named after policy and task, and the API server gives a name once. So a task never has two pods, however
often it is asked for, and whatever messages cross. A task whose pod was seen bound is over when the pod is gone. It is
not launched again: the caller must `release` it and ask again.

Conditions: a binding is reported before the end of the pod (as a watch does). After a restart, the policy first gets
everything that exists (`begin`), then is asked again for what is wanted. Pods of a former process, finished ones too,
are recognised by their labels. A pod that ran and was deleted while no process watched remains unknown.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from extender.core.cluster import Pod
from extender.esl.base import (
    CancelTask,
    Effect,
    EffectRefused,
    Event,
    LaunchTask,
    Notice,
    PodRequirement,
    StopTask,
)
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.names import PodUid

_PAUSE_SECONDS = 5.0
"""Pause before another attempt for a pod that could not be created."""


class Phase(Enum):
    WANTED = "wanted"
    """Its pod is to be created, or exists and is not bound."""
    RUNNING = "running"
    OVER = "over"


@dataclass(slots=True)
class Launch:
    """One task, and its progress."""

    task: Task
    phase: Phase = Phase.WANTED
    wanted: bool = True
    """False: it was released, but a pod of it that is not bound exists or will exist."""
    under_way: bool = False
    """Its LaunchTask is under way, and the pod has not been seen."""
    ending: PodUid | None = None
    """The pod that is being cancelled or stopped."""
    tired: bool = False
    """The pod is being cancelled because it has waited for too long."""
    not_before: float = 0.0


class LaunchingEsl(PolicyEsl):
    def __init__(self, name: str, **more: str) -> None:
        super().__init__(name, **more)
        self.launches: dict[str, Launch] = {}
        """By task, what was asked for in this process and not released."""

    # -- methods of a policy ---------------------------------------------------------------------------------------

    @abstractmethod
    def attempt(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]] | None:
        """The requirement to launch its pod with now, and other effects; None: not now."""

    def is_tired(self, task: Task, pod: Pod, now: float) -> bool:
        """Whether its pod, which is not bound, is to be cancelled."""
        return False

    def cancelled(self, task: Task, now: float) -> list[Effect]:
        """Its pod was cancelled and is gone; it was never bound."""
        return []

    def refused(self, task: Task, change: CancelTask | StopTask, now: float) -> None:
        """The change was refused: its pod stays."""

    # -- for the application ---------------------------------------------------------------------------------------

    def pod_name(self, task: str) -> str:
        """Unique among policies, because policies' names have no `--`."""
        return f"{self.name}--{task}"

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """Launches the task, unless launched or over. The application does not launch its pod."""
        known = self.launches.get(task.name)
        if known is not None and known.phase is Phase.OVER:
            return self.requirement(task), []
        self.launches[task.name] = launch = known or Launch(task)
        if not launch.wanted:
            launch.tired = False
        launch.task, launch.wanted = task, True
        try:
            return super().ask(task, now)
        except ValueError:
            if known is None:
                del self.launches[task.name]
            raise

    def release(self, task: str, now: float) -> list[Effect]:
        """Forgets the task, which may then be asked for again.

        Its pod, also one of a former process, is cancelled if it is not bound; otherwise it stays."""
        if task not in self.launches and self.pod_of(task) is not None:
            self.launches[task] = Launch(Task(task))
        if (launch := self.launches.get(task)) is not None:
            launch.wanted = False
        return super().release(task, now)

    def pod_of(self, task: str) -> Pod | None:
        """The task's pod, finished or not."""
        pod = self.view.pods.get((self.namespace, self.pod_name(task)))
        return pod if pod is not None and pod.labels.get(self.label) == task else None

    # -- effects -----------------------------------------------------------------------------------------------------

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        effects = [] if event is None else self._on_event(event, now)
        for launch in list(self.launches.values()):
            pod = self.pod_of(launch.task.name)
            effects += self._without_pod(launch, now) if pod is None else self._with_pod(launch, pod, now)
        return effects

    def due(self) -> float | None:
        return earliest(launch.not_before for launch in self.launches.values() if launch.not_before > self._now)

    def stop(self, launch: Launch, pod: Pod) -> list[Effect]:
        """Stops the pod; its task is launched again."""
        launch.ending = pod.uid
        return [StopTask(pod.namespace, pod.name, pod.uid)]

    def _on_event(self, event: Event, now: float) -> list[Effect]:
        if not isinstance(event, EffectRefused) or not isinstance(event.effect, LaunchTask | CancelTask | StopTask):
            return []
        change = event.effect
        name = change.name.removeprefix(f"{self.name}--")
        launch = self.launches.get(name)
        if launch is None or change.name != self.pod_name(name) or change.namespace != self.namespace:
            return []
        if isinstance(change, LaunchTask):
            launch.under_way, launch.not_before = False, now + _PAUSE_SECONDS
            return [Notice(self.name, name, f"pod {change.name} cannot be created: {event.why}")]
        if launch.ending == change.uid:
            launch.ending = None
            self.refused(launch.task, change, now)
        return []

    def _with_pod(self, launch: Launch, pod: Pod, now: float) -> list[Effect]:
        launch.under_way = False
        if launch.ending != pod.uid:
            launch.ending = None
        if pod.finished:
            self._end(launch)
        elif pod.node is not None and launch.phase is Phase.WANTED:
            # It cannot be cancelled any more. If it goes before the refusal, another client deleted it.
            launch.phase, launch.ending = Phase.RUNNING, None
        if launch.phase is not Phase.WANTED:
            if not launch.wanted:
                del self.launches[launch.task.name]
            return []
        tired = self.is_tired(launch.task, pod, now)
        if pod.deleting or launch.ending is not None or (launch.wanted and not tired):
            return []
        launch.ending, launch.tired = pod.uid, launch.wanted
        return [CancelTask(pod.namespace, pod.name, pod.uid)]

    def _without_pod(self, launch: Launch, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if launch.phase is Phase.RUNNING:
            if launch.ending is None:
                self._end(launch)
                text = f"pod {self.pod_name(launch.task.name)} ran and is gone; release and ask again to recreate it"
                effects.append(Notice(self.name, launch.task.name, text))
            else:
                launch.phase = Phase.WANTED
                self.tasks[launch.task.name] = launch.task
        elif launch.ending is not None and launch.tired:
            effects += self.cancelled(launch.task, now)
        launch.ending = None
        if not launch.wanted and not launch.under_way:
            del self.launches[launch.task.name]
        elif launch.phase is Phase.WANTED and not launch.under_way and now >= launch.not_before:
            effects += self._launch(launch, now)
        return effects

    def _launch(self, launch: Launch, now: float) -> list[Effect]:
        name = launch.task.name
        if (attempt := self.attempt(launch.task, now)) is None:
            return []
        launch.under_way = True
        requirement, beside = attempt
        return [*beside, LaunchTask(self.namespace, self.pod_name(name), name, requirement)]

    def _end(self, launch: Launch) -> None:
        launch.phase = Phase.OVER
        self.tasks.pop(launch.task.name, None)


def earliest(times: Iterable[float]) -> float | None:
    """The earliest time; None if there is none, or if it is infinite."""
    first = min(times, default=float("inf"))
    return first if first < float("inf") else None
