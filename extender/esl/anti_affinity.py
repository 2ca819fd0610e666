"""Anti-affinity: no node has two tasks of one group.

Each node has one unit of the group's resource, and each task asks for one.

On node loss: what ran there is gone and holds nothing; a node that comes is offered at once.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.esl.policy_esl import PolicyEsl, Task, Wanted
from extender.kube.quantities import Vector

_NO_GROUP = "all"


class AntiAffinity(PolicyEsl):
    def requires(self, task: Task) -> Vector:
        return {self.key(task.group or _NO_GROUP): 1}

    def capacities(self, now: float) -> Wanted:
        groups: Collection[str] = {task.group or _NO_GROUP for task in self.tasks.values()}
        return {node: {self.key(group): 1 for group in groups} for node in self.view.nodes}
