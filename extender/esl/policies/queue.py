"""Queue: at most `capacity` tasks run at a time, on any nodes; with a capacity of 1, a mutex.

Each task asks for one unit. All nodes together have as many units as the capacity: one where each holder runs, the
others where a waiting task has room. A unit that no task can use there moves to a node where one can, as does a unit
that no task took for `patience`. The new node gets it only once no task can have taken it before, after `grace`. So
never more tasks run than the capacity, as long as news takes less than `grace`.

Raising the capacity lets more tasks start at once. Lowering it kills none: while more run, or may run, no node has a
unit, so no task starts until enough have ended.

Not guaranteed: an order among waiting tasks; kube-scheduler decides it.

On node loss, the tasks there no longer count, and their units go to other nodes after `grace`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from extender.esl.base import Effect
from extender.esl.runtime.policy_esl import PolicyEsl, Task, kinds
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector

_UNIT = "unit"


class Queue(PolicyEsl):
    grace, patience = 5.0, 30.0

    def __init__(self, name: str, *, capacity: int, **where: str) -> None:
        """Raises ValueError, InvalidName."""
        super().__init__(name, **where)
        self.unit = self.key(_UNIT)
        self._capacity = self._checked(capacity)

    def requires(self, task: Task) -> Vector:
        return {self.unit: 1}

    def resize(self, capacity: int, now: float) -> list[Effect]:
        """At most `capacity` run from now on, plus running tasks beyond it. Raises ValueError."""
        self._capacity = self._checked(capacity)
        return self._effects(None, now)

    def capacities(self, now: float) -> Wanted:
        held = {node: self.view.used(node).get(self.unit, 0) for node in self.view.nodes}
        known = {node: max(self.offers.exposed(node, self.unit), held.get(node, 0)) for node in self._known()}
        budget = self._capacity - sum(known.values())
        if budget < 0:
            # The unit of a task that ends would go to another at once. A kubelet does not miss a unit that its node
            # does not have at all.
            return {}
        units = self._apportioned(held)
        for node in sorted(units):
            more = min(max(units[node] - known.get(node, 0), 0), budget)
            budget -= more
            units[node] = min(units[node], known.get(node, 0) + more)
        return {node: {self.unit: number} for node, number in units.items()}

    def _known(self) -> set[NodeName]:
        """The nodes where units are, or may be held."""
        return self.offers.exposing(self.unit) | self.view.nodes.keys()

    def _apportioned(self, held: dict[NodeName, int]) -> Counter[NodeName]:
        """The best places for units: one with each holder, the others one per waiting task."""
        units: Counter[NodeName] = Counter()
        spare = self._capacity
        for node in sorted(held):
            units[node] = min(held[node], spare)
            spare -= units[node]
        placed = self.placed()
        launched = {pod.labels[self.label] for pod in self.view.alive(self.label)}
        waiting = [task for task in self.tasks.values() if task.name not in placed]
        more: Counter[NodeName] = Counter()
        for whose in ([t for t in waiting if t.name in launched], [t for t in waiting if t.name not in launched]):
            # First tasks with a place not tried lately: one kind may wait for what its place will never have.
            turns = [self._places(alike, units, more) for alike in sorted(kinds(whose), key=self._tried)]
            while turns and spare:
                # Kinds take turns, so that many tasks that fit one node do not keep away the few for another.
                places = turns.pop(0)
                if (best := next(places, None)) is not None:
                    more[best] += 1
                    spare -= 1
                    turns.append(places)
        return units + more

    def _tried(self, alike: list[Task]) -> float:
        """When the best place for these tasks last had a unit without effect."""
        places = (node for node in self.view.nodes if self.suits(node, alike[0]))
        return min((self.offers.in_vain(node, self.unit) for node in places), default=math.inf)

    def _places(self, alike: list[Task], units: Counter[NodeName], more: Counter[NodeName]) -> Iterator[NodeName]:
        """For each task, the best node for one unit `more`, while a node has room."""

        def worth(node: NodeName) -> tuple[float, bool, int, NodeName]:
            there = self.offers.exposed(node, self.unit) > units[node] + more[node]
            return self.offers.in_vain(node, self.unit), not there, more[node], node

        task, left = alike[0], len(alike)
        best = [worth(node) for node in self.view.nodes if self.suits(node, task)]
        heapify(best)
        while best and left:
            node = best[0][-1]
            if best[0] != (now := worth(node)):
                # Units taken since have made the node worth less, never more.
                heapreplace(best, now)
            elif self.view.fits(node, task.needs, more[node] + 1):
                left -= 1
                yield node
            else:
                heappop(best)

    def _checked(self, capacity: int) -> int:
        if capacity < 0:
            raise ValueError(f"policy {self.name!r} has a capacity of {capacity}; give 0 or more")
        return capacity
