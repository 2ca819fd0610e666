"""Queue: at most so many tasks run at a time, wherever they run; with a capacity of 1, a mutex.

Each task asks for one unit. Units are of nodes, and only as many are on all nodes together as the capacity says: one
where each holder runs, the others where somebody who waits has room. A unit that nobody there can use goes to where
somebody can, and so does one that nobody has come for during `patience`; there, it is given only when nobody can have
taken it before, which takes `grace`. So no more run than the capacity says, as long as news takes less than that.

Raising the capacity lets more start at once. Lowering it kills nobody: nobody starts until enough have ended.

Not guaranteed: an order among those who wait, which is the scheduler's.

On node loss: what ran there does not count any more, and its units go to other nodes after `grace`.
"""

from __future__ import annotations

from collections import Counter

from extender.esl.base import Effect
from extender.esl.policy_esl import PolicyEsl, Task, Wanted
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
        units = self._apportioned(held)
        known = {node: max(self.offers.exposed(node, self.unit), held.get(node, 0)) for node in self._known()}
        budget = self._capacity - sum(known.values())
        for node in sorted(units):
            more = min(max(units[node] - known.get(node, 0), 0), max(budget, 0))
            budget -= more
            units[node] = min(units[node], known.get(node, 0) + more)
        return {node: {self.unit: number} for node, number in units.items()}

    def _known(self) -> set[NodeName]:
        """Where units are, or may be held by somebody."""
        return self.offers.exposing(self.unit) | self.view.nodes.keys()

    def _apportioned(self, held: dict[NodeName, int]) -> Counter[NodeName]:
        """Where units are best: with their holders, and of the others one for each who waits."""
        units: Counter[NodeName] = Counter()
        for node in sorted(held):
            units[node] = min(held[node], self._capacity - units.total())
        placed = self.placed()
        launched = {pod.labels[self.label] for pod in self.view.alive(self.label)}
        waiting = [task for task in self.tasks.values() if task.name not in placed]
        more: Counter[NodeName] = Counter()
        for task in sorted(waiting, key=lambda task: (task.name not in launched, task.name)):
            if units.total() + more.total() >= self._capacity:
                break
            best = min(
                (node for node in held if self.suits(node, task) and self.view.fits(node, task.needs, more[node] + 1)),
                key=lambda n: (self.offers.in_vain(n, self.unit), self._not_there(n, units[n] + more[n]), more[n], n),
                default=None,
            )
            if best is not None:
                more[best] += 1
        return units + more

    def _not_there(self, node: NodeName, units: int) -> bool:
        """Whether one more than that would have to come from elsewhere."""
        return self.offers.exposed(node, self.unit) <= units

    def _checked(self, capacity: int) -> int:
        if capacity < 0:
            raise ValueError(f"policy {self.name!r} has a capacity of {capacity}; give 0 or more")
        return capacity
