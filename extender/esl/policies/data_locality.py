"""Data locality: a task that reads data runs where the data is stored.

A task that stores data (`store`) marks the node of its pod; a task that reads it (`ask`) asks for the mark. The task's
group is the name of the data, which its replicas share. A reader of two data sets asks two such policies and merges
their requirements (`&`). The two policies do not agree on common holders.

Guaranteed: only nodes that run a replica have the mark, plus one holder if no replica runs on a node that takes pods. A
holder is a node that the application named as able to serve the data; it is used until a replica runs again. Of several
holders, a node with room for a waiting task comes first, then the node that has the mark, then the first. Not
guaranteed: that the replica still exists when the reader begins. A reader stays when its data goes.

On node loss: if another replica exists, nothing is needed; otherwise a holder replaces it. Without a holder, readers
wait until the data is stored again or a holder is back. A mark that a kubelet resets is set again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core.cluster import Pod
from extender.esl.base import Effect, Event, PodRequirement
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, ResourceKey
from extender.kube.quantities import Vector


class DataLocality(PolicyEsl):
    def __init__(self, name: str, holders: Mapping[str, Sequence[str]] | None = None, **more: str) -> None:
        """`holders`: by data, the nodes that can serve it without a storing task, best first."""
        super().__init__(name, **more)
        self._holders = {data: [NodeName(node) for node in of_data] for data, of_data in (holders or {}).items()}
        self._storing: set[str] = set()

    def hold(self, data: str, holders: Sequence[str], now: float) -> list[Effect]:
        """From now on only these nodes can serve the data in place of a replica."""
        self._holders[data] = [NodeName(node) for node in holders]
        return self._effects(None, now)

    def store(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """As `ask`, for a task that stores the data."""
        self._storing.add(task.name)
        return super().ask(task, now)

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """As PolicyEsl. A task that stored the data reads it from now on."""
        self._storing.discard(task.name)
        return super().ask(task, now)

    def requires(self, task: Task) -> Vector:
        if not task.group:
            raise InvalidName("group", "", f"of task {task.name!r} must be the name of the data")
        return {} if task.name in self._storing else {self.key(task.group): 1}

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        self._storing &= self.tasks.keys()
        return []

    def capacities(self, now: float) -> Wanted:
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        for data in {task.group for task in self.tasks.values() if task.group}:
            key = self.key(data)
            for node in self._places(data, key):
                wanted.setdefault(node, {})[key] = UNLIMITED
        return wanted

    def _places(self, data: str, key: ResourceKey) -> set[NodeName]:
        replicas = {pod.node for pod in self._running(data) if pod.node is not None and not pod.requests.get(key)}
        if any(self.view.is_open(node) for node in replicas):
            return replicas
        served = {pod.labels[self.label] for pod in self._running(data)}
        waiting = [task for task in self.tasks.values() if task.group == data and task.name not in served]

        def order(node: NodeName) -> tuple[bool, bool]:
            room = any(self.suits(node, task) for task in waiting if task.name not in self._storing)
            return not room, not self.will_have(node, key)

        peers = [node for node in self._holders.get(data, ()) if self.view.is_open(node)]
        return {*replicas, min(peers, key=order)} if peers else replicas

    def _running(self, data: str) -> list[Pod]:
        return [pod for pod in self.view.running(self.label) if pod.labels.get(self.group_label) == data]
