"""Anti-affinity: no node runs two tasks of one group, or of two groups that exclude each other.

Within a group: each node has one unit of the group's resource, and each task asks for one. So kube-scheduler never
binds a second task, even if the policy's view is old.

Between groups, a node may run many tasks of either side, which no vector of requests can say. So each group has its own
resource, and a node has it without limit for one side at a time. The other side gets the node when no task of the first
is there and none could have been bound for `grace`. No node ever has both sides if news of a binding takes less than
`grace`. A side keeps nodes while it has a task there, or a waiting task that has room there. If both sides wait, the
side with fewer nodes gets the next. A node that no task has used for `patience` goes to the other side. A group in no
pair may use any node.

On node loss, the tasks there are gone and hold nothing. A new node is offered at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task, kinds
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_NO_GROUP = "all"


class AntiAffinity(PolicyEsl):
    def requires(self, task: Task) -> Vector:
        return {self.key(task.group or _NO_GROUP): 1}

    def capacities(self, now: float) -> Wanted:
        groups: Collection[str] = {task.group or _NO_GROUP for task in self.tasks.values()}
        return {node: {self.key(group): 1 for group in groups} for node in self.view.nodes}


class PairedAntiAffinity(PolicyEsl):
    grace, patience = 5.0, 30.0

    def __init__(self, name: str, *, pairs: Iterable[tuple[str, str]], **where: str) -> None:
        """`pairs`: groups that exclude each other. Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        self._enemies: dict[str, set[str]] = {}
        for one, other in pairs:
            if one == other:
                raise ValueError(f"group {one!r} is paired with itself; use AntiAffinity")
            self._enemies.setdefault(one, set()).add(other)
            self._enemies.setdefault(other, set()).add(one)

    def requires(self, task: Task) -> Vector:
        return {self.key(task.group): 1} if task.group in self._enemies else {}

    def capacities(self, now: float) -> Wanted:
        there: dict[NodeName, set[str]] = {}
        bound, launched = set(), set()
        for pod in self.view.alive(self.label):
            group = pod.labels.get(self.group_label, "")
            if pod.node is None:
                launched.add(group)
                continue
            bound.add(pod.labels[self.label])
            if group in self._enemies:
                there.setdefault(pod.node, set()).add(group)
        waiting = [task for task in self.tasks.values() if task.group in self._enemies and task.name not in bound]
        shapes = [alike[0] for alike in kinds(waiting)]
        held = Counter(group for groups in there.values() for group in groups)
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        for node in sorted(self.view.nodes):
            here = there.get(node, set())
            sides = set(here)
            to_come = {task.group for task in shapes if self.suits(node, task)} - sides
            for group in sorted(to_come, key=lambda g: (g not in launched, *self._turn(node, g), held[g], g)):
                if not self._enemies[group] & sides:
                    sides.add(group)
                    held[group] += 1
            wanted[node] = {self.key(group): UNLIMITED for group in sides if not self._may_meet(node, group, here)}
        return wanted

    def _turn(self, node: NodeName, group: str) -> tuple[float, bool]:
        """Sort key: first the group that failed there longest ago, then the current one."""
        key = self.key(group)
        return self.offers.in_vain(node, key), not self.offers.exposed(node, key)

    def _may_meet(self, node: NodeName, group: str, here: Collection[str]) -> bool:
        """Whether a task of an excluded group is on the node, or may still be bound there."""
        return any(enemy in here or self.offers.exposed(node, self.key(enemy)) for enemy in self._enemies[group])
