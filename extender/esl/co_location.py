"""Co-location: all tasks of a group run on one node.

First come: the first of a group asks for nothing and goes where it may; its node then has the group's resource without
limit, and all others ask for one unit. Known group: how many there are and what all of them need together is known, so
a node is chosen that has room for it all; it has as many units, and each of them asks for one.

The mark is where members run. When none runs, and no first one is still to come, it is on a node with room for who
waits; it goes to another when that one is lost, has no room any more, or nobody came for `patience` (somebody else's
pods, which an application may not see, have the room). It is never on two nodes, nor on a second before members that
were bound to the former can be known of: so no group is split, as long as news takes less than `grace`.

Not guaranteed: room for all (a group that was not known beforehand, or whose node fills up when some run there already,
has members that wait); and a first one that was never launched has to be released, or the others wait for it. Who is
made again must be asked for again: made again from what the first one was told, it may come elsewhere.

On node loss: the members there are gone; those that wait, and those that are made again, go to another node together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from extender.core.units import add
from extender.esl.base import Effect, PodRequirement
from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_NO_GROUP = "all"


class _OnOneNode(PolicyEsl):
    grace, patience = 5.0, 30.0
    units = UNLIMITED

    @abstractmethod
    def first(self, group: str) -> str | None:
        """Whom the others wait for, who may go anywhere."""

    @abstractmethod
    def room(self, node: NodeName, waiting: Sequence[Task]) -> int:
        """How good the node would be for them; 0: not at all."""

    def to_come(self, group: str, node: NodeName) -> Vector:
        """What those of the group will need there beside what they have."""
        return {}

    def crowded(self, node: NodeName, to_come: Vector) -> bool:
        """Whether a group would have no room there beside what will be needed for others."""
        return False

    def mark(self, group: str) -> ResourceKey:
        return self.key(group or _NO_GROUP)

    def requires(self, task: Task) -> Vector:
        return {} if self.first(task.group) == task.name else {self.mark(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        placed = self.placed()
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        to_come: dict[NodeName, Vector] = {}
        # Who has a node already keeps it: whoever comes now chooses beside that.
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
    """First come."""

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
        """Each group of the policy has `size` members, which need so much together. Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        if size < 1:
            raise ValueError(f"policy {name!r} has groups of {size}; a group has 1 member or more")
        self.units, self._needs = size, needs

    def first(self, group: str) -> str | None:
        return None

    def possible_nodes(self, task: Task) -> Collection[NodeName]:
        """Those that have enough for all, whoever uses it; and where the group is, or was marked, by now."""
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
