"""AlphaZero's pattern: predictors are spread over the nodes with accelerators, and each has an aggregator beside it.

A task without a group is a predictor: it asks for an accelerator and for one unit of `lb`. Of that every node has as
many as all can take alike; when somebody waits, one more than the emptiest has of those with room. So of nodes that had
room none has two more than another, other than where predictors have ended. Where a predictor runs, its node has one
unit of the predictor's own resource, for which its aggregator asks: a task whose group is the predictor's name.

Not guaranteed: that both stay together. A predictor that is made again elsewhere does not take its aggregator along,
which finds it again when it is itself made again.

On node loss: predictors are made again by the application and spread over what is left; aggregators wait for theirs.
"""

from __future__ import annotations

from extender.esl.policy_esl import PolicyEsl, Task
from extender.esl.resource_sync import Wanted
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
        """As many as all nodes can take alike; and when somebody waits, one more than the emptiest has of those that
        have room."""
        with_room = {
            self.view.used(node).get(self.share, 0)
            for node in nodes
            for task in waiting
            if self.suits(node, task) and self.view.fits(node, {**task.needs, self._accelerator: 1})
        }
        return max(predictors // max(len(nodes), 1), min(with_room, default=0) + 1)

    def _beside(self, predictor: str) -> ResourceKey:
        return self.key(f"of-{predictor}")
