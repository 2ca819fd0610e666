"""Queue: at most so many tasks run at a time, wherever they run; with a capacity of 1, a mutex.

Each task asks for one unit. Units are of nodes, and only as many are on all nodes together as the capacity says: one
where each holder runs, the others where somebody who waits has room. A unit that nobody there can use goes to where
somebody can, and so does one that nobody has come for during `patience`; there, it is given only when nobody can have
taken it before, which takes `grace`. So no more run than the capacity says, as long as news takes less than that.

Raising the capacity lets more start at once. Lowering it kills nobody: while more run, or may, no node has a unit, so
that nothing starts until enough have ended.

Not guaranteed: an order among those who wait, which is the scheduler's.

On node loss: what ran there does not count any more, and its units go to other nodes after `grace`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from extender.esl.base import Effect
from extender.esl.policy_esl import PolicyEsl, Task, kinds
from extender.esl.resource_sync import Wanted
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
        """At most so many run from now on, or as many as ran before and have not ended. Raises ValueError."""
        self._capacity = self._checked(capacity)
        return self._effects(None, now)

    def capacities(self, now: float) -> Wanted:
        held = {node: self.view.used(node).get(self.unit, 0) for node in self.view.nodes}
        known = {node: max(self.offers.exposed(node, self.unit), held.get(node, 0)) for node in self._known()}
        budget = self._capacity - sum(known.values())
        if budget < 0:
            # The unit of one that ends would be another's at once. One that its node does not have at all its kubelet
            # does not miss.
            return {}
        units = self._apportioned(held)
        for node in sorted(units):
            more = min(max(units[node] - known.get(node, 0), 0), budget)
            budget -= more
            units[node] = min(units[node], known.get(node, 0) + more)
        return {node: {self.unit: number} for node, number in units.items()}

    def _known(self) -> set[NodeName]:
        """Where units are, or may be held by somebody."""
        return self.offers.exposing(self.unit) | self.view.nodes.keys()

    def _apportioned(self, held: dict[NodeName, int]) -> Counter[NodeName]:
        """Where units are best: with their holders, and of the others one for each who waits."""
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
            # First those with a place that was not tried lately: one kind may wait for what its place will never have.
            turns = [self._places(alike, units, more) for alike in sorted(kinds(whose), key=self._tried)]
            while turns and spare:
                # Each kind in its turn, so that many who can go to one node do not keep away the few for another.
                places = turns.pop(0)
                if (best := next(places, None)) is not None:
                    more[best] += 1
                    spare -= 1
                    turns.append(places)
        return units + more

    def _tried(self, alike: list[Task]) -> float:
        """When the best place for them last had a unit in vain."""
        places = (node for node in self.view.nodes if self.suits(node, alike[0]))
        return min((self.offers.in_vain(node, self.unit) for node in places), default=math.inf)

    def _places(self, alike: list[Task], units: Counter[NodeName], more: Counter[NodeName]) -> Iterator[NodeName]:
        """For each of the tasks the best node for one unit `more`, as long as there is one that has room."""

        def worth(node: NodeName) -> tuple[float, bool, int, NodeName]:
            there = self.offers.exposed(node, self.unit) > units[node] + more[node]
            return self.offers.in_vain(node, self.unit), not there, more[node], node

        task, left = alike[0], len(alike)
        best = [worth(node) for node in self.view.nodes if self.suits(node, task)]
        heapify(best)
        while best and left:
            node = best[0][-1]
            if best[0] != (now := worth(node)):
                # What was taken since has made the node worth less, never more.
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
