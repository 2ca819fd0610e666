"""Signal: a task starts when its predecessors have succeeded; for barriers, DAGs and chains.

When a task has succeeded, each node has a resource of its name without limit, and each successor asks for one unit. So
a successor's pod may exist before, and waits. It is never bound before all its predecessors have succeeded.

A success is known from the task's own pod while that exists, and otherwise from the resource on nodes. The application
also remembers it while it lives. So a restart loses nothing that a waiting pod needs. Signals are removed when no task
has existed for `linger` seconds. A success is unknown if the pod was deleted before it was seen; then the application
calls `succeeded`. It may do so also for what is no pod. A failed task signals nothing; recreated, it may succeed yet.
Names are used once: a task that has succeeded stays so.

A mutex is a queue with one unit: see `queue`.

On node loss: a new node has every signal; with the last node goes what only nodes remembered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from extender.core.cluster import Pod
from extender.esl.base import CapacityConfirmed, CapacitySeen, Effect, Event, PodSeen
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector


class Signal(PolicyEsl):
    linger = 60.0

    def __init__(self, name: str, *, after: Mapping[str, Collection[str]], **where: str) -> None:
        """`after`: by task, its predecessors. Raises ValueError for a cycle, and InvalidName."""
        super().__init__(name, **where)
        self._after = self._ordered(after)
        self._succeeded: set[str] = set()
        self._until = 0.0

    def requires(self, task: Task) -> Vector:
        return {self.key(before): 1 for before in self._after.get(task.name, ())}

    def succeeded(self, task: str, now: float) -> list[Effect]:
        """The application reports that the task has succeeded."""
        self._succeeded.add(task)
        return self._effects(None, now)

    def reorder(self, after: Mapping[str, Collection[str]], now: float) -> list[Effect]:
        """New asks use these predecessors, existing pods wait as before. Raises as `Signal`."""
        self._after = self._ordered(after)
        return self._effects(None, now)

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        match event:
            case CapacityConfirmed(_, key, units) | CapacitySeen(_, key, units):
                self._succeeded |= set(self._named([key] if units else ()))
            case PodSeen(pod):
                self._succeeded |= self._in_success([pod])
            case None:
                self._succeeded |= set(self._named({key for _, key in self.view.units}))
                self._succeeded |= self._in_success(self.view.pods.values())
        if self.tasks or not self._until:
            self._until = now + self.linger
        return []

    def capacities(self, now: float) -> Wanted:
        if now >= self._until:
            return {}
        to_come = {each for task, before in self._after.items() if task not in self._succeeded for each in before}
        to_come |= {each for pod in self.waiting() for each in self._named(pod.requests)}
        signals = {self.key(each): UNLIMITED for each in sorted(self._succeeded & to_come)}
        return dict.fromkeys(self.view.nodes, signals)

    def due(self) -> float | None:
        return self._until if not self.tasks and self._now < self._until < math.inf else None

    def _in_success(self, pods: Iterable[Pod]) -> set[str]:
        mine = (pod for pod in pods if pod.namespace == self.namespace and self.label in pod.labels)
        return {pod.labels[self.label] for pod in mine if pod.succeeded}

    def _named(self, keys: Iterable[ResourceKey]) -> Iterator[str]:
        """The tasks whose signals these are, for keys of this policy."""
        return (key.removeprefix(self._prefix) for key in keys if self.owns(key))

    def _ordered(self, after: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        ordered = {task: sorted(set(before)) for task, before in after.items()}
        for signal in {each for before in ordered.values() for each in before}:
            self.key(signal)
        left = dict(ordered)
        while ready := [task for task, before in left.items() if not left.keys() & set(before)]:
            for task in ready:
                del left[task]
        if left:
            raise ValueError(f"policy {self.name!r}: {', '.join(sorted(left))} would wait for each other forever")
        return ordered
