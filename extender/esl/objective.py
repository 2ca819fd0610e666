"""Objective function: a task goes to a node of good score; how good it insists on being is halved until there is room.

A node has as many units of the policy's resource left as its score, a whole number up to gamma, which the application's
function gives it; what tasks there hold is had beside. A task asks for gamma, or gamma/2, gamma/4 and so on, and in the
end for 1: any node but those of score 0. `alternatives` is that list, the best first, to be tried one after another;
who asks without it has the best that a node with room meets at that moment, and waits should that fill up.

Guaranteed, once units are as they should be: whoever is bound by an alternative is on a node whose score is that at
least. So who tries one after another, each for long enough, has at least half of the best score with room, where that
is gamma / 2**(steps - 1) or more. It is an approximation: when a task ends, its node has what it held too much until
that is known, and when one begins, its node has too little. Nothing is moved when scores change; they are asked for
with every event.

On node loss: scores are those of the nodes left.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.cluster import Node
from extender.core.names import in_domain
from extender.esl.policy_esl import PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector


class Objective(PolicyEsl):
    def __init__(
        self, name: str, score: Callable[[Node], float], *, gamma: int = 1024, steps: int = 5, **more: str
    ) -> None:
        """`score`: from 0, not here, to gamma; beyond that it counts as gamma, and what is not whole is rounded down.
        Raises ValueError where gamma cannot be halved so many times less one."""
        super().__init__(name, **more)
        if steps < 1 or gamma >> (steps - 1) < 1:
            raise ValueError(f"gamma={gamma} cannot be halved to {steps} steps; it is at least 2**(steps - 1)")
        self._score, self._gamma = score, gamma
        self._thresholds = [gamma >> step for step in range(steps)]
        if self._thresholds[-1] > 1:
            self._thresholds.append(1)

    def alternatives(self, task: Task) -> tuple[Vector, ...]:
        """What the task's pod may ask for, the best first; a node that meets one meets all that follow."""
        return tuple({self.key("obj"): units} for units in self._thresholds)

    def requires(self, task: Task) -> Vector:
        needs = {key: units for key, units in task.needs.items() if not in_domain(key, self.domain)}
        scores = [
            self.score(node)
            for node in self.view.eligible(needs, task.node_labels)
            if self.view.fits(node, needs) and not self.refuses(node)
        ]
        best = max(scores, default=0)
        met = [units for units in self._thresholds if units <= best]
        return {self.key("obj"): met[0] if met else 1}

    def capacities(self, now: float) -> Wanted:
        key = self.key("obj")
        if not self.tasks:
            return {}
        return {node: {key: self.score(node) + self.view.used(node).get(key, 0)} for node in self.view.nodes}

    def score(self, node: NodeName) -> int:
        return max(0, min(self._gamma, int(self._score(self.view.nodes[node]))))
