"""Data locality: who reads data goes where it is stored.

A task that stores data (`store`) marks the node that its pod runs on; one that reads it (`ask`) asks for the mark. The
task's group is the data's name, and replicas share it. What reads two kinds of data asks two such policies, and has
what both answer (`&`); they do not agree on holders.

Guaranteed: a mark stands where a replica runs, and nowhere else but on one holder: where no replica runs on a node
that takes pods, a node that the application has named as able to serve the data has the mark too, until there is one
again. Of several it is one that has room for somebody who waits, then the one that has it already, then the first.
Not guaranteed: that the replica is still there when the reader begins; and a reader stays when its data goes.

On node loss: with a replica elsewhere there is nothing to do; else a holder stands in; with none, readers wait until
the data is stored again, or a holder is back. What a kubelet forgets is set again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core.cluster import Pod
from extender.esl.base import Effect, Event, PodRequirement
from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, ResourceKey
from extender.kube.quantities import Vector


class DataLocality(PolicyEsl):
    def __init__(self, name: str, holders: Mapping[str, Sequence[str]] | None = None, **more: str) -> None:
        """`holders`: by data, the nodes that could serve it now if no task stored it; the best first."""
        super().__init__(name, **more)
        self._holders = {data: [NodeName(node) for node in of_data] for data, of_data in (holders or {}).items()}
        self._storing: set[str] = set()

    def hold(self, data: str, holders: Sequence[str], now: float) -> list[Effect]:
        """These could serve the data from now on, and no others."""
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
            raise InvalidName("group", "", f"of task {task.name!r} is to be the name of the data")
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
