"""Co-location: all tasks of a group run on one node.

`CoLocation` (first come): the first task of a group asks for nothing and may use any node. That node then has the
group's resource without limit, and every other task asks for one unit. `KnownGroup`: the size and the total needs of
the group are known. A node with room for all is chosen; it has as many units, and each task asks for one.

The mark (the group's resource) is on the node where members run. If none runs and no first task is still to come, the
mark is on a node with room for the waiting tasks. It moves when that node is lost, has no more room, or no task came
for `patience`: pods that the application may not see can use the room. The mark is never on two nodes. It is not on a
second node before bindings to the former are known. So no group is split, as long as news takes less than `grace`.

Not guaranteed: room for all. Members may wait if the group was not known beforehand, or if its node fills up. A first
task that was never launched must be released, or the others wait for it. Recreated tasks must be asked for again: one
made from the first task's requirement may go to another node. On node loss, the members there are gone; waiting and
recreated members go together to another node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from extender.core.ledger.units import add
from extender.esl.base import Effect, PodRequirement
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_NO_GROUP = "all"


class _OnOneNode(PolicyEsl):
    grace, patience = 5.0, 30.0
    units = UNLIMITED

    @abstractmethod
    def first(self, group: str) -> str | None:
        """The task that may use any node, and that the others wait for."""

    @abstractmethod
    def room(self, node: NodeName, waiting: Sequence[Task]) -> int:
        """How well the node suits the waiting tasks; 0: not at all."""

    def to_come(self, group: str, node: NodeName) -> Vector:
        """What the group's tasks will need on the node beyond what they have."""
        return {}

    def crowded(self, node: NodeName, to_come: Vector) -> bool:
        """Whether a group would have no room there, given what other groups will need."""
        return False

    def mark(self, group: str) -> ResourceKey:
        return self.key(group or _NO_GROUP)

    def requires(self, task: Task) -> Vector:
        return {} if self.first(task.group) == task.name else {self.mark(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        placed = self.placed()
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        to_come: dict[NodeName, Vector] = {}
        # A group that has a node keeps it; groups without one choose after it.
        groups = {task.group for task in self.tasks.values()}
        for group in sorted(groups, key=lambda each: (not self.offers.exposing(self.mark(each)), each)):
            node = self._node(group, placed, to_come)
            if node is not None:
                to_come[node] = add([to_come.get(node, {}), self.to_come(group, node)])
            for name, units in (self.nowhere_else(node, self.mark(group), self.units) if node else {}).items():
                wanted.setdefault(name, {}).update(units)
        return wanted

    def _node(self, group: str, placed: Mapping[str, NodeName], to_come: Mapping[NodeName, Vector]) -> NodeName | None:
        key, members = self.mark(group), self.members(group)
        marked = self.offers.exposing(key) & self.view.nodes.keys()
        there = Counter(placed[task.name] for task in members if task.name in placed)
        if there:
            return min(there, key=lambda node: (-there[node], node not in marked, node))
        if self.first(group) is not None:
            return None
        room = {node: units for node in self.view.nodes if (units := self.room(node, members))}

        def order(node: NodeName) -> tuple[float, bool, bool, int, NodeName]:
            crowded = self.crowded(node, to_come.get(node, {}))
            return self.offers.in_vain(node, key), crowded, node not in marked, -room[node], node

        return min(room, default=None, key=order) or min(marked, default=None)


class CoLocation(_OnOneNode):
    """First come: the node of a group's first task becomes the group's node."""

    def __init__(self, name: str, **where: str) -> None:
        super().__init__(name, **where)
        self._first: dict[str, str] = {}

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        if task.name not in self.tasks:
            if not self.members(task.group) and not self.offers.exposing(self.mark(task.group)):
                self._first[task.group] = task.name
            elif self._first.get(task.group) == task.name:
                del self._first[task.group]
        return super().ask(task, now)

    def first(self, group: str) -> str | None:
        name = self._first.get(group, "")
        if name in self.tasks:
            return name
        key = self.mark(group)
        pods = (pod for pod in self.view.alive(self.label) if pod.labels.get(self.group_label, "") == group)
        return min((pod.labels[self.label] for pod in pods if key not in pod.requests), default=None)

    def room(self, node: NodeName, waiting: Sequence[Task]) -> int:
        suited = [task for task in waiting if self.suits(node, task)]
        together = (self.view.fits(node, add(task.needs for task in suited[: n + 1])) for n in range(len(suited)))
        return sum(together)


class KnownGroup(_OnOneNode):
    def __init__(self, name: str, *, size: int, needs: Vector, **where: str) -> None:
        """Each group has `size` members with total `needs`. Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        if size < 1:
            raise ValueError(f"policy {name!r} has groups of size {size}; write 1 or more")
        self.units, self._needs = size, needs

    def first(self, group: str) -> str | None:
        return None

    def possible_nodes(self, task: Task) -> Collection[NodeName]:
        """Nodes whose total amounts suffice for all, and where the group or its mark is."""
        placed = self.placed()
        there = {placed[each.name] for each in self.members(task.group) if each.name in placed}
        marked = self.offers.exposing(self.mark(task.group)) & self.view.nodes.keys()
        return {*self.view.eligible(self._needs, {}), *there, *marked}

    def room(self, node: NodeName, waiting: Sequence[Task]) -> int:
        return int(self.view.fits(node, self._needs) and all(self.suits(node, task) for task in waiting))

    def to_come(self, group: str, node: NodeName) -> Vector:
        pods = (pod for pod in self.view.running(self.label) if pod.node == node)
        there = add(pod.requests for pod in pods if pod.labels.get(self.group_label, "") == group)
        return {resource: max(0, units - there.get(resource, 0)) for resource, units in self._needs.items()}

    def crowded(self, node: NodeName, to_come: Vector) -> bool:
        return not self.view.fits(node, add([self._needs, to_come]))
