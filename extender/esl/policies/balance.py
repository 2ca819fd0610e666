"""Load balancing: units of a group's resource on each node spread the group's tasks.

Each task asks for one unit. Running tasks are not moved. On node loss, the other nodes get what the lost one had. Only
known nodes count: list all nodes first (`begin`), or the first known nodes get everything.

`Balance`: the number of tasks is known. No node has more than ceil(tasks / nodes) units, counting the open nodes that a
task of the group could ever use. A task waits rather than exceed that, even if foreign pods fill another node. If more
tasks are known than expected, their number counts.

`DynamicBalance`: the number is unknown. A node has `floor` units more than the least loaded node with room has tasks.
Numbers differ by at most `floor` while no task ends, no node comes and all nodes have room. The order of events does
not matter: units rise for running tasks, whose number does not fall. After tasks end, differences may be larger,
because nothing is moved. A new task then goes to a node that is at most `floor + slack - 1` tasks above the least
loaded one. Only nodes known to have room for it count. No task waits for nodes without room.

Reason for floor and slack: the textbook rule raises units when no node has one left, and lowers them when all have one.
Raising gives every node one, so the rule lowers them again, and never comes to rest. Here units are lowered only when
more than `slack` above the level to which they would be raised. With slack 0, one task that ends and another that
begins change every node twice; with slack 1, none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from extender.core.cluster import Pod
from extender.esl.runtime.placing import Placing
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
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
        """How many units each node should have for the tasks of one group."""

    def nodes_for(self, tasks: list[Task]) -> list[NodeName]:
        """The nodes that a task of the list could ever use, by name."""
        kinds = {(tuple(sorted(task.needs.items())), tuple(sorted(task.node_labels.items()))): task for task in tasks}
        eligible = {node for task in kinds.values() for node in self.view.eligible(task.needs, task.node_labels)}
        return sorted(node for node in eligible if not self.refuses(node))


class Balance(_Balance):
    def __init__(self, name: str, tasks: int, **more: str) -> None:
        """`tasks`: how many tasks of a group there will be at a time."""
        super().__init__(name, **more)
        self._expected = tasks

    def levels(self, tasks: list[Task], key: ResourceKey) -> Mapping[NodeName, int]:
        nodes = self.nodes_for(tasks)
        # A cordoned node takes no new task and keeps its units, because its pods still ask for them.
        open_nodes = sum(not self.view.nodes[node].unschedulable for node in nodes)
        return dict.fromkeys(nodes, -(-max(self._expected, len(tasks)) // max(1, open_nodes)))


class DynamicBalance(_Balance):
    def __init__(self, name: str, *, floor: int = 1, slack: int = 1, **more: str) -> None:
        """Raises ValueError if floor is below 1 or slack below 0."""
        if floor < 1 or slack < 0:
            raise ValueError(f"floor must be at least 1 and slack at least 0; they are {floor} and {slack}")
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
            # A node without room for any pod keeps the level it has.
            has = max(self._floor, self.at_most(node, key))
            level = levels.get(node, has)
            levels[node] = has if level <= has <= level + self._slack else level
        return levels


def _kind(pod: Pod) -> tuple[object, ...]:
    """Pods with an equal key have room on the same nodes."""
    asked, selector = tuple(sorted(pod.requests.items())), tuple(sorted(pod.node_selector.items()))
    return asked, selector, pod.affinity, pod.tolerations
