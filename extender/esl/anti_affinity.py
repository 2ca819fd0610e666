"""Anti-affinity: no node has two tasks of one group; or of two groups that keep away from each other.

Within a group, each node has one unit of the group's resource, and each task asks for one: the scheduler itself never
binds a second, whatever anybody knows.

Between groups, many of the one side or many of the other may be on a node, which no vector of requests can say. So
each group has a resource of its own, and a node has it without limit for one side at a time. The other side gets the
node when nobody of the first is there, and none has been able to come for `grace`: no node ever has two enemies, as
long as news of a binding takes less than that. A side has nodes while it has somebody there, or somebody waiting who
would have room; where both sides wait, the one with fewer nodes gets the next, and a node where nobody has come for
`patience` goes to the other. A group that is in no pair goes anywhere.

On node loss: what ran there is gone and holds nothing; a node that comes is offered at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task, kinds
from extender.esl.resource_sync import Wanted
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
        """`pairs` of groups keep away from each other, and not from their own. Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        self._enemies: dict[str, set[str]] = {}
        for one, other in pairs:
            if one == other:
                raise ValueError(f"group {one!r} cannot keep away from itself by a pair; use AntiAffinity")
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
        """Who has not been tried there for longest comes first, and among these who has it now."""
        key = self.key(group)
        return self.offers.in_vain(node, key), not self.offers.exposed(node, key)

    def _may_meet(self, node: NodeName, group: str, here: Collection[str]) -> bool:
        """Whether an enemy is there, or may come yet."""
        return any(enemy in here or self.offers.exposed(node, self.key(enemy)) for enemy in self._enemies[group])
