"""Bin packing: tasks go to as few nodes as come to it one after another; a node is opened when one fits no open node.

Open nodes have the policy's resource without limit, and each task asks for one. Open are the nodes that run one of the
tasks; for each task that waits and has room on none of them one more is, the one that it fills best: what is open
already before what is not, so that a choice is kept to. A node that nobody uses, or waits for, is closed.

Guaranteed: a node is opened only for a task for which, as far as is known, there is no room on those that are open. Not
guaranteed: the fewest nodes possible. Nothing that runs is moved; and of several that wait at once the scheduler may
put the first where the second was meant to be, and one more node is opened then.

A task that has waited for `patience` seconds with an open node that would do, as far as is known, has one more opened,
and so on: so pods that nobody tells of hold up nobody for ever. What is asked for and not launched opens nothing. On
node loss: whoever is made again goes where there is room on what is open.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.core.cluster import Pod
from extender.esl.placing import Patience, Placing
from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
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
        # A set would be in another order in each process.
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
        """Of those that are open already, or else of all, the one of which least would be left."""

        def rest(node: NodeName) -> float:
            has = self.view.nodes[node].allocatable
            asked = placing.needs(pod)
            return max(
                ((placing.left(node, each) - asked[each]) / has[each] for each in asked if asked[each]), default=0
            )

        return min(among, key=lambda node: (not self.at_most(node, self.key("bp")), rest(node), node))
