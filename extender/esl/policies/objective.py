"""Objective function: tasks go to nodes with a good score; thresholds halve until there is room.

The application's function gives each node a score, a whole number up to gamma. The node has as many free units of the
policy's resource as its score, beyond the units that tasks there hold. A task asks for gamma, or gamma/2, gamma/4 and
so on, and in the end for 1: any node whose score is not 0. `alternatives` is that list, the best first, to be tried in
order. Other callers get the best alternative that a node with room meets at that moment, and wait if it fills up.

Guaranteed, once units are up to date: a task bound by an alternative is on a node with at least that score. So a caller
that tries one alternative after another, each for long enough, gets at least half of the best score with room. That
holds for best scores of at least gamma / 2**(steps - 1). It is an approximation: when a task ends, its node has too
many units until that is known; when one begins, too few. Nothing is moved when scores change. Every event recomputes
them. On node loss, the scores of the remaining nodes count.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.cluster import Node
from extender.core.names import in_domain
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector


class Objective(PolicyEsl):
    def __init__(
        self, name: str, score: Callable[[Node], float], *, gamma: int = 1024, steps: int = 5, **more: str
    ) -> None:
        """`score`: 0 (never here) to gamma; rounded down, larger values count as gamma.

        Raises ValueError if gamma cannot be halved `steps` - 1 times."""
        super().__init__(name, **more)
        if steps < 1 or gamma >> (steps - 1) < 1:
            raise ValueError(f"gamma={gamma} cannot be halved in {steps} steps; write 2**(steps - 1) or more")
        self._score, self._gamma = score, gamma
        self._thresholds = [gamma >> step for step in range(steps)]
        if self._thresholds[-1] > 1:
            self._thresholds.append(1)

    def alternatives(self, task: Task) -> tuple[Vector, ...]:
        """What the task's pod may ask for, best first; a node that meets one meets the next."""
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
