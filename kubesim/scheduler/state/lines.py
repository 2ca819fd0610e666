"""Lines: queued pods in the order of their turns."""

from __future__ import annotations

import heapq
from itertools import count

from kubesim.scheduler.state.seen import PodKey, SeenPod


class QueuedPod:
    """A pod in the queue; the object stays the same until the pod is bound."""

    def __init__(self, pod: SeenPod, now: float) -> None:
        self.pod = pod
        self.since = now
        self.attempts = 0
        self.rejections = 0
        self.errors = 0
        """Consecutive errors until now."""
        self.rejectors: dict[str, None] = {}
        self.gate = ""
        """The plugin that keeps it out of the queue; empty if none does."""


class Line:
    """Queued pods by a sort key, the least first; `first` skips pods that left early."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], int, QueuedPod]] = []
        self._present: dict[PodKey, int] = {}
        self._pods: dict[PodKey, QueuedPod] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, key: PodKey) -> QueuedPod | None:
        return self._pods.get(key)

    def pods(self) -> list[QueuedPod]:
        return list(self._pods.values())

    def put(self, queued: QueuedPod, order: tuple[float, ...]) -> None:
        number = next(self._numbers)
        self._present[queued.pod.key] = number
        self._pods[queued.pod.key] = queued
        heapq.heappush(self._heap, (order, number, queued))

    def discard(self, key: PodKey) -> bool:
        self._present.pop(key, None)
        return self._pods.pop(key, None) is not None

    def first(self) -> QueuedPod | None:
        while self._heap:
            _, number, queued = self._heap[0]
            if self._present.get(queued.pod.key) == number:
                return queued
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPod | None:
        queued = self.first()
        if queued is not None:
            heapq.heappop(self._heap)
            self.discard(queued.pod.key)
        return queued
