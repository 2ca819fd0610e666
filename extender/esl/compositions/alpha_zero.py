"""AlphaZero's pattern: predictors are spread over accelerator nodes, each beside its aggregator.

A task without a group is a predictor. It asks for an accelerator and for one unit of `lb`. Every node has an equal
share of `lb` units; if a predictor waits, at least one more than the least loaded node with room uses. So among nodes
that had room, loads differ by at most one, except where predictors have ended. The node of a running predictor has one
unit of the predictor's own resource. The aggregator, a task whose group is the predictor's name, asks for that unit.

Not guaranteed: that both stay together. A predictor recreated on another node leaves its aggregator behind. The
aggregator rejoins it when it is itself recreated.

On node loss the application recreates predictors, which spread over the remaining nodes. Aggregators wait for theirs.
"""

from __future__ import annotations

from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

_GPU = ResourceKey("nvidia.com/gpu")


class AlphaZero(PolicyEsl):
    def __init__(self, name: str, *, accelerator: ResourceKey = _GPU, **where: str) -> None:
        super().__init__(name, **where)
        self._accelerator = accelerator
        self.share = self.key("lb")

    def requires(self, task: Task) -> Vector:
        return {self._beside(task.group): 1} if task.group else {self._accelerator: 1, self.share: 1}

    def capacities(self, now: float) -> Wanted:
        placed = self.placed()
        predictors = [task for task in self.tasks.values() if not task.group]
        wanted: dict[NodeName, dict[ResourceKey, int]] = {}
        if predictors:
            waiting = [task for task in predictors if task.name not in placed]
            nodes = self.view.eligible({self._accelerator: 1}, {})
            share = self._fair_share(nodes, len(predictors), waiting)
            wanted = {node: {self.share: share} for node in nodes}
        for task in predictors:
            if task.name in placed:
                wanted.setdefault(placed[task.name], {})[self._beside(task.name)] = 1
        return wanted

    def _fair_share(self, nodes: list[NodeName], predictors: int, waiting: list[Task]) -> int:
        """Units of `lb` for each node: the equal share, or more if a predictor waits."""
        with_room = {
            self.view.used(node).get(self.share, 0)
            for node in nodes
            for task in waiting
            if self.suits(node, task) and self.view.fits(node, {**task.needs, self._accelerator: 1})
        }
        return max(predictors // max(len(nodes), 1), min(with_room, default=0) + 1)

    def _beside(self, predictor: str) -> ResourceKey:
        return self.key(f"of-{predictor}")
