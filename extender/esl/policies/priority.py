"""Priority: the lower a task's priority, the emptier its node must be; no task waits for ever.

Each node has 1000 units, and a task asks for as many as its group: few if urgent, up to 1000 if it must run alone. So
less urgent tasks wait where urgent ones run. Nothing running is stopped, and a running task of 1000 units keeps even
the most urgent from its node.

Against starvation: of the tasks that waited `patience` seconds, the longest waiting gets a turn. A node is chosen that
would have room if none of the policy's tasks were there, and has the fewest. It lets in no other task until that task
is bound, there or elsewhere. A pod's requests are fixed, and units that let it in would let in more urgent ones, too.
So each task has a ticket, a number of its own: it asks for that much of one resource, and for the remainder of a fixed
sum of another. A node with just these amounts admits no task while one of the policy runs there, and then only that
task.

So, if a task runs for at most r seconds, the n-th waiting task is bound within patience + n * r seconds. Add the delay
of effects and news. It holds whatever tasks come meanwhile, if foreign pods leave the task room on a node. Not
guaranteed: a bound across restarts, which restart the wait; more than 9999 tasks at once; room taken by unknown pods.
After a start, list everything first, or tickets may be given twice and two tasks share a turn.

At most one node at a time is kept for a turn. If it is lost or cordoned, another is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.core.ledger.units import add_to
from extender.esl.runtime.placing import Placing
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector

UNITS = 1000
_TICKETS = 10_000
_MOST_PODS = 1000
"""More than a kubelet runs."""


class Priority(PolicyEsl):
    def __init__(self, name: str, asks: Mapping[str, int], *, patience: float = 600.0, **more: str) -> None:
        """`asks`: units by group, from 1 for the most urgent to 1000. Raises ValueError."""
        super().__init__(name, **more)
        for group, units in asks.items():
            if not 1 <= units <= UNITS:
                raise ValueError(f"group {group!r} asks for {units} units; write 1 to {UNITS}")
        self._asks, self._patience = dict(asks), patience
        self._tickets: dict[str, int] = {}
        self._since: dict[PodUid, float] = {}
        """Since when each waiting pod has waited, as far as this process has seen."""
        self._turn: tuple[PodUid, NodeName] | None = None

    def requires(self, task: Task) -> Vector:
        if task.group not in self._asks:
            raise InvalidName("group", task.group, f"is not one of {', '.join(sorted(self._asks)) or 'none'}")
        taken = set(self._tickets.values())
        if task.name not in self._tickets:
            self._tickets[task.name] = next((number for number in range(1, _TICKETS) if number not in taken), 1)
        return self._amounts(self._asks[task.group], self._tickets[task.name])

    def capacities(self, now: float) -> Wanted:
        self._know(now)
        self._turn = self._next_turn(now)
        wanted = dict.fromkeys(self.view.nodes if self.tasks else (), self._amounts(UNITS, None))
        if self._turn is not None:
            uid, node = self._turn
            asked = next(pod.requests for pod in self.waiting() if pod.uid == uid)
            wanted[node] = {key: asked.get(key, 0) for key in wanted.get(node, {})}
        return wanted

    def due(self) -> float | None:
        return min(
            (until for since in self._since.values() if (until := since + self._patience) > self._now), default=None
        )

    def _amounts(self, units: int, ticket: int | None) -> dict[ResourceKey, int]:
        """Amounts of the three resources; without a ticket, enough for any task."""
        rising, falling = (ticket, _TICKETS - ticket) if ticket else (_MOST_PODS * _TICKETS,) * 2
        return {self.key("units"): units, self.key("ticket"): rising, self.key("tocket"): falling}

    def _know(self, now: float) -> None:
        """Updates the tickets, from pods and for tasks not over, and the start of each wait."""
        said = {pod.labels[self.label]: pod.requests.get(self.key("ticket"), 0) for pod in self.view.alive(self.label)}
        known = {**self._tickets, **{task: number for task, number in said.items() if number}}
        self._tickets = {task: number for task, number in known.items() if task in self.tasks}
        self._since = {pod.uid: self._since.get(pod.uid, now) for pod in self.waiting()}

    def _next_turn(self, now: float) -> tuple[PodUid, NodeName] | None:
        late = [pod for pod in self.waiting() if self._since[pod.uid] + self._patience <= now]
        there: dict[NodeName, dict[ResourceKey, int]] = {}
        tasks: dict[NodeName, int] = {}
        for pod in self.view.running(self.label):
            assert pod.node is not None
            add_to(there.setdefault(pod.node, {}), pod.requests)
            tasks[pod.node] = tasks.get(pod.node, 0) + 1
        placing = Placing(self.view, self.domain)
        for pod in sorted(late, key=lambda pod: (self._since[pod.uid], pod.name)):
            would_do = [
                name
                for name, node in sorted(self.view.nodes.items())
                if accepts(node, pod)
                and not self.refuses(name)
                and all(
                    units <= placing.left(name, each) + there.get(name, {}).get(each, 0)
                    for each, units in placing.needs(pod).items()
                )
            ]
            if would_do:
                return pod.uid, min(
                    would_do, key=lambda name: ((pod.uid, name) != self._turn, tasks.get(name, 0), name)
                )
        return None
