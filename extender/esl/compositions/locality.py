"""Locality: tasks run on a named node, or on the node of another task's pod.

The node has the resource `here` without limit, and each task asks for one unit. The task that others run beside asks
for nothing, and may use any node. While its pod exists, finished or not, the others go to its node. When the pod is
gone, they go to the node where it last was, while a task still waits for that.

Not guaranteed: that the tasks stay together. If that task is recreated elsewhere, tasks already running stay.

On node loss, the others wait until the named node comes back, or the task runs again elsewhere.
"""

from __future__ import annotations

from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector

_HERE = "here"


class Locality(PolicyEsl):
    def __init__(self, name: str, *, node: str = "", beside: str = "", **where: str) -> None:
        """Give `node` or `beside` (a task of this policy). Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        if bool(node) == bool(beside):
            raise ValueError(f"policy {name!r} needs either `node` or `beside`; give exactly one")
        self._node, self._beside = NodeName(node), beside

    def requires(self, task: Task) -> Vector:
        return {} if task.name == self._beside else {self.key(_HERE): 1}

    def capacities(self, now: float) -> Wanted:
        if not self.tasks.keys() - {self._beside}:
            return {}
        node = self._node or self._beside_node()
        return {node: {self.key(_HERE): UNLIMITED}} if node else {}

    def _beside_node(self) -> NodeName | None:
        pods = [pod for pod in self.view.pods.values() if pod.labels.get(self.label) == self._beside]
        for pod in sorted(pods, key=lambda pod: pod.finished):
            if pod.node in self.view.nodes:
                return pod.node
        return min(self.offers.exposing(self.key(_HERE)), default=None)
