"""Locality: tasks run on one node, which is named, or is that of another task's pod.

The node has the resource `here` without limit, and each task asks for one. The task that others run beside asks for
nothing, and goes where it may. As long as its pod is there, finished or not, the others go to its node; when the pod
is gone, to the node where it last was, while somebody still waits for that.

Not guaranteed: that it stays. Made again elsewhere, it does not take along who runs beside it already.

On node loss: the others wait until the named node comes back, or the task runs again elsewhere.
"""

from __future__ import annotations

from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector

_HERE = "here"


class Locality(PolicyEsl):
    def __init__(self, name: str, *, node: str = "", beside: str = "", **where: str) -> None:
        """`node` is a node's name, `beside` a task's of this policy; one of both. Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        if bool(node) == bool(beside):
            raise ValueError(f"policy {name!r} needs a node, or a task to run beside; give one of both")
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
