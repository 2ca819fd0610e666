"""Weighted fair queueing: divides slots among queues in proportion to their weights.

A task's group is its queue; the task asks for one unit of the queue's resource. A node has as many units as tasks of
the queue run there, plus one for each pod let in, where it has room. Shares are integer apportionments (`apportion`)
among the queues that run tasks or have waiting pods with room. What a queue cannot use is lent to others.

Guaranteed: all queues together never run more tasks than there are slots, however late effects and news arrive. News of
a pod must not be later than news of the node's units. One queue's unit is taken away before another's is given. No slot
stays idle while a pod waits for which there is room, once all is known. Reclaiming slots kills nothing. While a queue
runs more than its share and others want it, it has no units, so a task that ends is not replaced. Each freed slot goes
to the queue furthest below its share. No queue has units while more tasks run than there are slots, as after a restart
with fewer. Not guaranteed: which task of a queue is let in; the first by name is intended, but another may take the
unit.

A task without a pod has no slot. A pod that waited `patience` seconds with a usable unit gets one on another node,
behind the others of its queue. On node loss, the tasks there are gone and their slots are free. List everything first
(`begin`), so that slots in use are not given out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from extender.core.cluster import Pod
from extender.core.policies.policy_types import LARGEST_WEIGHT
from extender.esl.base import Effect
from extender.esl.policies.apportion import apportion_at_most
from extender.esl.runtime.placing import Patience, Placing
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, ResourceKey, require_label
from extender.kube.quantities import Vector


class FairQueueing(PolicyEsl):
    def __init__(
        self, name: str, slots: int, weights: Mapping[str, int], *, patience: float = 60.0, **more: str
    ) -> None:
        """`weights`: by queue. Raises ValueError for slots below 0, and for invalid weights."""
        super().__init__(name, **more)
        if slots < 0:
            raise ValueError(f"slots is {slots}; write 0 or more")
        self._check(weights)
        self._slots, self._weights = slots, dict(weights)
        self._patience = Patience(patience)

    def set_weights(self, weights: Mapping[str, int], now: float) -> list[Effect]:
        """From now on these are the queues; tasks in others go on. Raises ValueError."""
        self._check(weights)
        self._weights = dict(weights)
        return self._effects(None, now)

    def requires(self, task: Task) -> Vector:
        if task.group not in self._weights:
            raise InvalidName(
                "group", task.group, f"is not a queue; the queues are {', '.join(sorted(self._weights)) or 'none'}"
            )
        return {self.key(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        runs: Counter[tuple[NodeName, ResourceKey]] = Counter()
        running: Counter[str] = Counter()
        for pod in self.view.running(self.label):
            assert pod.node is not None
            runs[pod.node, self._key_of(pod)] += 1
            running[self._queue(pod)] += 1
        has = {(node, self.key(suffix)): self.at_most(node, self.key(suffix)) for node, suffix in self.furnished()}
        # Units that nodes have or may have, and tasks that run beyond them, are not free.
        free = self._slots - sum(max(runs[place], has.get(place, 0)) for place in {*runs, *has})
        wanted = Counter(runs)
        placing = Placing(self.view, self.domain)
        parts = self._parts(running)
        let_in: list[Pod] = []
        spare = self._slots - running.total()
        for pod in self._in_turn(running, parts, now):
            key, times = self._key_of(pod), self._patience.times(pod, now)
            room = self._room(pod, placing)
            with_unit = [node for node in room if wanted[node, key] < has.get((node, key), 0)]
            # If a unit there had no effect, trying the node again before others is useless.
            among = room[times % len(room) :][:1] if room and times else with_unit or room
            if not among or len(let_in) >= spare or (among[0] not in with_unit and free <= 0):
                continue
            free -= among[0] not in with_unit
            wanted[among[0], key] += 1
            placing.place(pod, among[0])
            let_in.append(pod)
        self._patience.wait(let_in, self.waiting(), now)
        growing = {self._queue(pod) for pod in let_in}
        shrinking = {self.key(q) for q, n in running.items() if spare < 0 or (n > parts.get(q, 0) and q not in growing)}
        of_nodes: dict[NodeName, dict[ResourceKey, int]] = {}
        for (node, resource), units in wanted.items():
            of_nodes.setdefault(node, {})[resource] = 0 if resource in shrinking else units
        return of_nodes

    def due(self) -> float | None:
        return self._patience.due()

    def _parts(self, running: Mapping[str, int]) -> dict[str, int]:
        """The number of slots due to each queue that could use some."""
        nobody_else = Placing(self.view, self.domain)
        demands = Counter(running)
        demands.update(self._queue(pod) for pod in self.waiting() if self._room(pod, nobody_else))
        return apportion_at_most(self._slots, {q: w for q, w in self._weights.items() if demands[q]}, demands)

    def _in_turn(self, running: Mapping[str, int], parts: Mapping[str, int], now: float) -> Iterator[Pod]:
        """The waiting pods, next from the queue furthest below its share; then other queues."""
        lines: dict[str, list[Pod]] = {}
        for pod in sorted(self.waiting(), key=lambda pod: (self._patience.times(pod, now), pod.name), reverse=True):
            if self._queue(pod) in parts:
                lines.setdefault(self._queue(pod), []).append(pod)
        have = Counter(running)
        while lines:
            queue = min(lines, key=lambda q: (have[q] >= parts[q], (have[q] + 1) / self._weights[q], q))
            have[queue] += 1
            yield lines[queue].pop()
            if not lines[queue]:
                del lines[queue]

    def _room(self, pod: Pod, placing: Placing) -> list[NodeName]:
        return [node for node in sorted(self.view.nodes) if placing.has_room(node, pod) and not self.refuses(node)]

    def _queue(self, pod: Pod) -> str:
        return pod.labels.get(self.group_label, "")

    def _key_of(self, pod: Pod) -> ResourceKey:
        return self.key(self._queue(pod))

    @staticmethod
    def _check(weights: Mapping[str, int]) -> None:
        for queue, weight in weights.items():
            require_label("queue", queue)
            if not 1 <= weight <= LARGEST_WEIGHT:
                raise ValueError(f"weight of queue {queue!r} is {weight}; write 1 to {LARGEST_WEIGHT}")
