"""Signal: a task starts when those before it have succeeded. Barriers and DAGs are made of it, and chains.

When a task has succeeded, each node has a resource of its name without limit; whoever comes after it asks for one.
So a successor's pod may be there before, and waits; it is never bound before all that it comes after have succeeded.

What has succeeded is known by the task's own pod while that is there, by the resource on nodes when it is not, and
while the application lives in any case: a restart loses nothing that a waiting pod needs. Signals go when no task has
been there for `linger` seconds. What succeeded and was deleted before anybody saw it is unknown: the application says
`succeeded` then, as it may do for what is no pod. A task that failed signals nothing; made again, it may succeed yet.
Names are used once: a task that has succeeded has done so for good.

A mutex is a queue with one unit: see `queue`.

On node loss: a node that comes has every signal; with the last node goes what only nodes remembered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from extender.core.cluster import Pod
from extender.esl.base import CapacityConfirmed, CapacitySeen, Effect, Event, PodSeen
from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import ResourceKey
from extender.kube.quantities import Vector


class Signal(PolicyEsl):
    linger = 60.0

    def __init__(self, name: str, *, after: Mapping[str, Collection[str]], **where: str) -> None:
        """`after`: by task, the tasks that it comes after. Raises ValueError where some come after themselves, and
        InvalidName."""
        super().__init__(name, **where)
        self._after = self._ordered(after)
        self._succeeded: set[str] = set()
        self._until = 0.0

    def requires(self, task: Task) -> Vector:
        return {self.key(before): 1 for before in self._after.get(task.name, ())}

    def succeeded(self, task: str, now: float) -> list[Effect]:
        """The application says so."""
        self._succeeded.add(task)
        return self._effects(None, now)

    def reorder(self, after: Mapping[str, Collection[str]], now: float) -> list[Effect]:
        """Who asks from now on comes after these; whose pod is there waits for what it was told. Raises as `Signal`."""
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
        """The tasks whose signals these are, of those that are ours."""
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
            raise ValueError(f"policy {self.name!r}: {', '.join(sorted(left))} would wait for each other for ever")
        return ordered
