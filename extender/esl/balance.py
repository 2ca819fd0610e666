"""Load balancing: the tasks of a group are spread over the nodes, by how many units of the group's resource nodes have.

Each task asks for one. Nothing that runs is moved; on node loss the others are given what the lost one had. It goes by
the nodes that are known: who starts lists them first (`begin`), or the first nodes known are given everything.

`Balance`: the number of tasks is known. No node has more than ceil(tasks / nodes) units, over the nodes where one of
the group could ever go; a task waits rather than go beyond, also where another node is full of others' pods. Where
more than that many are known, their number counts.

`DynamicBalance`: it is not known. A node has `floor` units more than the emptiest node with room has tasks. So as long
as none ends, no node comes and there is room on all, numbers differ by `floor` at most, in whatever order things
happen: units are raised for tasks that run, whose number does not fall. When tasks have ended, those that run may
differ by more, for nothing is moved; whoever comes then goes where there are at most `floor + slack - 1` more than on
the emptiest node with room for it, as far as was known by then. Nobody waits for nodes without room.

Why floor and slack: the rule of the book is to raise when no node has a unit left, and to lower when all have one. But
to raise gives all nodes one, so that it is lowered, so that none has one: it never comes to rest. Here units are
lowered when they are more than `slack` above what they would be raised to. With slack 0 a task that ends and one that
begins change every node twice; with 1 they change none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from extender.core.cluster import Pod
from extender.esl.placing import Placing
from extender.esl.policy_esl import PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_NO_GROUP = "all"


class _Balance(PolicyEsl):
    def requires(self, task: Task) -> Vector:
        return {self.key(task.group or _NO_GROUP): 1}

    def capacities(self, now: float) -> Wanted:
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        for group in {task.group for task in self.tasks.values()}:
            key = self.key(group or _NO_GROUP)
            for node, units in self.levels([task for task in self.tasks.values() if task.group == group], key).items():
                wanted.setdefault(node, {})[key] = units
        return wanted

    @abstractmethod
    def levels(self, tasks: list[Task], key: ResourceKey) -> Mapping[NodeName, int]:
        """How many units nodes should have for the tasks of one group."""

    def nodes_for(self, tasks: list[Task]) -> list[NodeName]:
        """Those where one of them could ever go."""
        kinds = {(tuple(sorted(task.needs.items())), tuple(sorted(task.node_labels.items()))): task for task in tasks}
        eligible = {node for task in kinds.values() for node in self.view.eligible(task.needs, task.node_labels)}
        return sorted(node for node in eligible if not self.refuses(node))


class Balance(_Balance):
    def __init__(self, name: str, tasks: int, **more: str) -> None:
        """`tasks`: how many of a group there will be at a time."""
        super().__init__(name, **more)
        self._expected = tasks

    def levels(self, tasks: list[Task], key: ResourceKey) -> Mapping[NodeName, int]:
        nodes = self.nodes_for(tasks)
        # A cordoned node takes none, and keeps what it has: its pods are still asking for it.
        open_nodes = sum(not self.view.nodes[node].unschedulable for node in nodes)
        return dict.fromkeys(nodes, -(-max(self._expected, len(tasks)) // max(1, open_nodes)))


class DynamicBalance(_Balance):
    def __init__(self, name: str, *, floor: int = 1, slack: int = 1, **more: str) -> None:
        """Raises ValueError where floor is below 1, or slack below 0."""
        if floor < 1 or slack < 0:
            raise ValueError(f"floor is at least 1 and slack at least 0; they are {floor} and {slack}")
        super().__init__(name, **more)
        self._floor, self._slack = floor, slack

    def levels(self, tasks: list[Task], key: ResourceKey) -> Mapping[NodeName, int]:
        there = {node: self.view.used(node).get(key, 0) for node in self.nodes_for(tasks)}
        kinds = {_kind(pod): pod for pod in self.view.alive(self.label) if pod.requests.get(key)}
        placing = Placing(self.view, self.domain)
        levels: dict[NodeName, int] = {}
        for pod in kinds.values():
            room = [node for node in there if placing.has_room(node, pod)]
            level = min((there[node] for node in room), default=0) + self._floor
            for node in room:
                levels[node] = max(level, levels.get(node, 0))
        for node in there:
            # Where there is no room for any, nothing is to be said, and what is said stays.
            has = max(self._floor, self.at_most(node, key))
            level = levels.get(node, has)
            levels[node] = has if level <= has <= level + self._slack else level
        return levels


def _kind(pod: Pod) -> tuple[object, ...]:
    """Pods of one kind have room on the same nodes."""
    asked, selector = tuple(sorted(pod.requests.items())), tuple(sorted(pod.node_selector.items()))
    return asked, selector, pod.affinity, pod.tolerations
