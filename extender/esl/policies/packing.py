"""Bin packing: tasks fill few nodes, one after another; a node opens when a task fits no open node.

Open nodes have the policy's resource without limit, and each task asks for one. A node that runs a task is open. Each
waiting task without room on open nodes opens one more: the node that it fills best. Nodes open already come before
others, so that a choice is kept. A node that no task uses or waits for is closed.

Guaranteed: a node opens only for a task that, as far as is known, has no room on the open nodes. Not guaranteed: the
fewest nodes possible. Running tasks are not moved. If several wait at once, kube-scheduler may put the first where the
second was meant to be; then one more node opens.

A task that waited `patience` seconds with an open node that seems to suit it opens one more node, and so on. So unknown
pods never block a task for ever. A task without a pod opens nothing. On node loss, recreated tasks go where open nodes
have room.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.core.cluster import Pod
from extender.esl.runtime.placing import Patience, Placing
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector


class Packing(PolicyEsl):
    def __init__(self, name: str, *, patience: float = 60.0, **more: str) -> None:
        super().__init__(name, **more)
        self._patience = Patience(patience)

    def requires(self, task: Task) -> Vector:
        return {self.key("bp"): 1}

    def capacities(self, now: float) -> Wanted:
        waiting = self.waiting()
        self._patience.wait(waiting, (), now)
        # A set would have another order in each process.
        in_use = dict.fromkeys(pod.node for pod in self.view.running(self.label))
        open_nodes = [node for node in sorted(self.view.nodes) if node in in_use and not self.refuses(node)]
        placing = Placing(self.view, self.domain)
        for pod in waiting:
            room = [node for node in sorted(self.view.nodes) if placing.has_room(node, pod) and not self.refuses(node)]
            fresh = [node for node in room if node not in open_nodes]
            among = [node for node in room if node in open_nodes] or fresh
            if among:
                best = self._best(among, pod, placing)
                placing.place(pod, best)
                further = [best, *(node for node in fresh if node != best)][: 1 + self._patience.times(pod, now)]
                open_nodes.extend(node for node in further if node not in open_nodes)
        return {node: {self.key("bp"): UNLIMITED} for node in open_nodes}

    def due(self) -> float | None:
        return self._patience.due()

    def _best(self, among: Iterable[NodeName], pod: Pod, placing: Placing) -> NodeName:
        """Of the nodes already open, or else of all, the one with the least room left."""

        def rest(node: NodeName) -> float:
            has = self.view.nodes[node].allocatable
            asked = placing.needs(pod)
            return max(
                ((placing.left(node, each) - asked[each]) / has[each] for each in asked if asked[each]), default=0
            )

        return min(among, key=lambda node: (not self.at_most(node, self.key("bp")), rest(node), node))
