"""Gandiva's move: a job starts anywhere, and moves to one node once a node can hold all of it.

    apart -> checkpoint wanted -> `checkpointed` -> stopping -> launched again, on the one node -> apart or together
                  |                                    |                |
                  +------- the node has room no more --+----------------+-- and so anywhere again

A task's group is its job. Its pod always asks for one unit of the job's mark. Every node has the mark; during a move,
only one. The application launches nothing itself, and saves its work: `checkpoints` lists the jobs from which a
checkpoint is wanted, a notice announces it, and the application answers with `checkpointed`.

Guaranteed: it stops only pods that ran when the checkpoint was wanted, and only after the application confirmed that
checkpoint. A task never has more than one pod. A stopped job runs again with the requests it had: together if the node
still holds it, or anywhere if it is not there after `wait` seconds. Not guaranteed: work done after a checkpoint, which
is lost at the stop. Between stop and launch the room is not held, and other pods may take it. So after a failed move
the next is not tried for `rest` seconds, doubled each time.

On node loss: as soft constraints, a task that ran there is over, and a notice says so: release it and ask again. A move
to that node, or of tasks there, is cancelled. After the application's death, a started move goes no further: running
pods stay, and tasks without a pod are launched anywhere when asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from extender.core.cluster import Pod
from extender.core.common.backoff import doubled
from extender.core.ledger.units import add
from extender.core.names import in_domain
from extender.esl.base import CancelTask, Effect, Event, Notice, PodRequirement, StopTask
from extender.esl.runtime.launching import Launch, LaunchingEsl, Phase, earliest
from extender.esl.runtime.policy_esl import UNLIMITED, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_NO_JOB = "all"
_LONGEST_REST = 3600.0


class Step(Enum):
    CHECKPOINT = "checkpoint wanted"
    STOPPING = "stopping"
    LAUNCHING = "launching"


@dataclass(slots=True)
class _Move:
    to: NodeName
    number: int
    pods: Mapping[str, Pod]
    """By task, the pods that ran when the checkpoint was wanted."""
    step: Step = Step.CHECKPOINT
    until: float = float("inf")


class Gandiva(LaunchingEsl):
    def __init__(self, name: str, *, wait: float = 30.0, rest: float = 60.0, **more: str) -> None:
        super().__init__(name, **more)
        self._wait, self._rest = wait, rest
        self._moves: dict[str, _Move] = {}
        self._rests: dict[str, tuple[int, float]] = {}
        """By job: how many moves in a row have failed, and until when none is tried."""
        self._number = 0

    # -- for the application ---------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """By job, the number of the checkpoint that is wanted from it."""
        return {job: move.number for job, move in self._moves.items() if move.step is Step.CHECKPOINT}

    def checkpointed(self, job: str, number: int, now: float) -> list[Effect]:
        """The work of all the job's tasks is saved, and they may be stopped.

        If that checkpoint is no longer wanted, only a notice says so."""
        if self.checkpoints.get(job) != number:
            return [self._unwanted(job, number)]
        self._moves[job].step = Step.STOPPING
        stops = [
            effect for name, pod in self._moves[job].pods.items() for effect in self.stop(self.launches[name], pod)
        ]
        return [*stops, *self._effects(None, now)]

    # -- methods of a policy -----------------------------------------------------------------------------------------

    def requires(self, task: Task) -> Vector:
        return {self.key(job_of(task)): 1}

    def capacities(self, now: float) -> Wanted:
        wanted: dict[NodeName, dict[ResourceKey, int]] = {node: {} for node in self.view.nodes}
        for job in {job_of(task) for task in self.tasks.values()}:
            move = self._moves.get(job)
            for node in self.view.nodes:
                if move is None or move.step is Step.CHECKPOINT or move.to == node:
                    wanted[node][self.key(job)] = UNLIMITED
        return wanted

    def attempt(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]] | None:
        move = self._moves.get(job_of(task))
        step = Step.CHECKPOINT if move is None else move.step
        if move is not None and step is Step.LAUNCHING and self.offers.exposing(self.key(job_of(task))) - {move.to}:
            # Other nodes have the mark, or may still get it: pods might be bound there.
            return None
        return None if step is Step.STOPPING else (self.requirement(task), [])

    def refused(self, task: Task, change: CancelTask | StopTask, now: float) -> None:
        """A pod cannot be stopped: the job stays as it is, and its stopped tasks run anywhere."""
        self._fail(job_of(task), now)

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        effects = super().decide(event, now)
        jobs: dict[str, dict[str, Launch]] = defaultdict(dict)
        for name, launch in self.launches.items():
            if launch.wanted and launch.phase is not Phase.OVER:
                jobs[job_of(launch.task)][name] = launch
        for gone in (self._moves.keys() | self._rests.keys()) - jobs.keys():
            self._moves.pop(gone, None)
            self._rests.pop(gone, None)
        for job, launches in jobs.items():
            effects += self._see_to_job(job, launches, now)
        # The step may allow launches.
        return [*effects, *super().decide(None, now)]

    def due(self) -> float | None:
        known = [*(move.until for move in self._moves.values()), *(until for _, until in self._rests.values())]
        return earliest(time for time in (super().due(), *known) if time is not None and time > self._now)

    # -- the moves -----------------------------------------------------------------------------------------------------

    def _see_to_job(self, job: str, launches: Mapping[str, Launch], now: float) -> list[Effect]:
        pods = {name: pod for name in launches if (pod := self._running(name)) is not None}
        whole = len(pods) == len(launches) and self._knows_all_of(job)
        move = self._moves.get(job)
        if move is None:
            apart = len({pod.node for pod in pods.values()}) > 1
            if whole and apart and now >= self._rests.get(job, (0, now))[1] and (to := self._room_for(launches, pods)):
                return self._begin(job, to, pods)
        elif move.step is Step.CHECKPOINT:
            same = whole and {pod.uid for pod in pods.values()} == {pod.uid for pod in move.pods.values()}
            if not same or (to := self._room_for(launches, move.pods)) is None:
                del self._moves[job]
                return [self._unwanted(job, move.number), *self._see_to_job(job, launches, now)]
            move.to = to if not self._holds(move.to, launches, move.pods) else move.to
        elif move.step is Step.STOPPING:
            if any(launches[name].phase is Phase.RUNNING for name in move.pods.keys() & launches.keys()):
                return []
            to = move.to if self._holds(move.to, launches, move.pods) else self._room_for(launches, move.pods)
            if to is None:
                self._fail(job, now)
            else:
                move.to, move.step, move.until = to, Step.LAUNCHING, now + self._wait
        elif whole and {pod.node for pod in pods.values()} == {move.to}:
            del self._moves[job]
            self._rests.pop(job, None)
        elif whole or now >= move.until or not self._holds(move.to, launches, move.pods):
            self._fail(job, now)
        return []

    def _begin(self, job: str, to: NodeName, pods: Mapping[str, Pod]) -> list[Effect]:
        self._number += 1
        self._moves[job] = _Move(to, self._number, pods)
        text = f"checkpoint {self._number} of job {job} is wanted: node {to} can hold all its {len(pods)} tasks"
        return [Notice(self.name, job, text)]

    def _unwanted(self, job: str, number: int) -> Notice:
        return Notice(self.name, job, f"checkpoint {number} of job {job} is no longer wanted; its tasks go on")

    def _fail(self, job: str, now: float) -> None:
        if self._moves.pop(job, None) is not None:
            times, _ = self._rests.get(job, (0, 0.0))
            self._rests[job] = times + 1, now + doubled(self._rest, times, _LONGEST_REST)

    def _running(self, task: str) -> Pod | None:
        pod = self.pod_of(task)
        return pod if pod is not None and pod.node in self.view.nodes and not (pod.finished or pod.deleting) else None

    def _knows_all_of(self, job: str) -> bool:
        """Whether every known task of the job was asked for in this process."""
        return all(name in self.launches for name, task in self.tasks.items() if job_of(task) == job)

    def _room_for(self, launches: Mapping[str, Launch], pods: Mapping[str, Pod]) -> NodeName | None:
        """The node that can hold the whole job: the one with most of its pods, then the first."""
        there = [pod.node for pod in pods.values()]
        able = [node for node in sorted(self.view.nodes) if self._holds(node, launches, pods)]
        return min(able, key=lambda node: -there.count(node), default=None)

    def _holds(self, node: NodeName, launches: Mapping[str, Launch], pods: Mapping[str, Pod]) -> bool:
        """Whether the node could run all the job's tasks; `pods` give requests of known tasks."""
        if not self.view.is_open(node):
            return False
        needs: list[Vector] = []
        for name, launch in launches.items():
            labels = self.view.nodes[node].labels
            if any(labels.get(key) != value for key, value in launch.task.node_labels.items()):
                return False
            if (pod := self._running(name)) is None or pod.node != node:
                asked = pods[name].requests if name in pods else launch.task.needs
                needs.append({key: units for key, units in asked.items() if not in_domain(key, self.domain)})
        return self.view.fits(node, add(needs))


def job_of(task: Task) -> str:
    return task.group or _NO_JOB
