"""Queue: pods to schedule now, pods in back-off, and pods that wait for an event.

As in kube-scheduler, the order is by priority, then by arrival or last rejection. A rejected pod waits for an event
that may help it, and backs off for 1 s, 2 s, 4 s ... It is tried earlier if nothing else is active. A pod whose attempt
ended in an error also backs off, and nothing shortens that. Back-off ends at whole seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

from extender.kube.names import PodUid
from kubesim.clock import Clock
from kubesim.scheduler.plugins.hints import DEFAULT_PREEMPTION, SCHEDULING_GATES, News, hears_of, worth_a_try
from kubesim.scheduler.state.lines import Line, QueuedPod
from kubesim.scheduler.state.news import ClusterEvent, of_pod
from kubesim.scheduler.state.nominator import Nominator
from kubesim.scheduler.state.seen import PodKey, SeenPod

LONGEST_WAIT = 300.0
"""Seconds after which a pod is retried without any event."""
_LOOK_FOR_THEM = 30.0
_HAIR = 1e-6


class Queue:
    """The queue. `preempting`: whether a pod's own preemption is still running."""

    def __init__(
        self,
        clock: Clock,
        nominator: Nominator,
        initial_backoff: float,
        max_backoff: float,
        preempting: Callable[[PodUid], bool],
    ) -> None:
        self.nominator = nominator
        self._clock = clock
        self._initial, self._longest = initial_backoff, max_backoff
        self._preempting = preempting
        self._begun = clock.now()
        self._active = Line()
        self._backing_off = Line()
        self._after_errors = Line()
        self._waiting: dict[PodKey, QueuedPod] = {}
        self._in_flight: dict[PodUid, list[News]] = {}
        self._stirred = asyncio.Event()
        self._flush: asyncio.TimerHandle | None = None
        self._leftovers: asyncio.TimerHandle | None = None

    def close(self) -> None:
        for timer in (self._flush, self._leftovers):
            if timer is not None:
                timer.cancel()

    # -- inspection ----------------------------------------------------------------------------------------------

    def place(self, key: PodKey) -> str:
        """Where the pod is: active, backoff, unschedulable, gated, or "" if it is not queued."""
        if self._active.get(key) is not None:
            return "active"
        if self._backing_off.get(key) is not None or self._after_errors.get(key) is not None:
            return "backoff"
        waiting = self._waiting.get(key)
        if waiting is not None:
            return "gated" if waiting.gate else "unschedulable"
        return ""

    def counts(self) -> dict[str, int]:
        gated = sum(1 for each in self._waiting.values() if each.gate)
        return {
            "active": len(self._active),
            "backoff": len(self._backing_off) + len(self._after_errors),
            "unschedulable": len(self._waiting) - gated,
            "gated": gated,
        }

    # -- adding and removing -------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Returns when `pop` can return a pod."""
        while not self._active and not self._backing_off:
            self._stirred.clear()
            await self._stirred.wait()

    def pop(self) -> QueuedPod | None:
        """The next pod, which is in flight until `done` or `give_back`; None if there is none."""
        while (queued := self._active.pop() or self._backing_off.pop()) is not None:
            queued.attempts += 1
            if queued.pod.uid not in self._in_flight:
                self._in_flight[queued.pod.uid] = []
                return queued
        return None

    def done(self, uid: PodUid) -> None:
        self._in_flight.pop(uid, None)

    def add(self, pod: SeenPod) -> None:
        """Adds a new pod."""
        self._activate(QueuedPod(pod, self._clock.now()), named=True)

    def give_back(self, queued: QueuedPod) -> None:
        """Returns a pod after a failed attempt: rejected if it has rejectors, else an error."""
        heard = self._in_flight.pop(queued.pod.uid, [])
        if self.place(queued.pod.key):
            return
        if queued.rejectors:
            queued.rejections += 1
            queued.errors = 0
        else:
            queued.errors += 1
        queued.since = self._clock.now()
        worth = not queued.rejectors or any(worth_a_try(queued.pod, queued.rejectors, news) for news in heard)
        self._requeue(queued, worth)

    def update(self, old: SeenPod, new: SeenPod) -> None:
        """Updates a pod that is not bound."""
        events = of_pod(old, new)
        if new.uid in self._in_flight:
            self._hear([News(event, old, new) for event in events])
            return
        for line in (self._active, self._backing_off, self._after_errors):
            queued = line.get(old.key)
            if queued is not None:
                queued.pod = new
                self.nominator.update(old, new)
                return
        queued = self._waiting.get(new.key)
        if queued is None:
            self._activate(QueuedPod(new, self._clock.now()), named=True)
            return
        queued.pod = new
        self.nominator.update(old, new)
        for event in events:
            if self._requeue(queued, worth_a_try(new, queued.rejectors, News(event, old, new))):
                return

    def remove(self, pod: SeenPod) -> None:
        """Removes a pod that needs no node any more."""
        self.nominator.remove(pod.uid)
        for line in (self._active, self._backing_off, self._after_errors):
            if line.discard(pod.key):
                return
        self._waiting.pop(pod.key, None)

    def move(self, news: News, only: Callable[[SeenPod], bool] | None = None) -> None:
        """Handles an event: requeues the waiting pods that it may help."""
        self._move([each for each in self._waiting.values() if only is None or only(each.pod)], news)

    def force(self, pod: SeenPod) -> None:
        """Activates the pod at once, wherever it waits."""
        queued = self._waiting.get(pod.key)
        for line in (self._backing_off, self._after_errors):
            found = line.get(pod.key)
            if queued is None and found is not None:
                line.discard(pod.key)
                queued = found
        if queued is not None:
            self._activate(queued)
        elif pod.uid in self._in_flight:
            self._hear([News(ClusterEvent.FORCED, None, pod)])

    # -- moving pods ---------------------------------------------------------------------------------------------

    def _move(self, those: Iterable[QueuedPod], news: News) -> None:
        for queued in those:
            if queued.gate and not hears_of(queued.gate, news.event):
                continue
            if worth_a_try(queued.pod, queued.rejectors, news):
                self._requeue(queued, True)
        self._hear([news])

    def _hear(self, news: list[News]) -> None:
        for heard in self._in_flight.values():
            heard.extend(news)

    def _requeue(self, queued: QueuedPod, worth: bool) -> bool:
        """Activates the pod, or makes it back off or wait; returns whether it stopped waiting."""
        if not worth:
            self._set_aside(queued)
            return False
        if self._still_backing_off(queued):
            return self._back_off(queued)
        return self._activate(queued)

    def _activate(self, queued: QueuedPod, *, named: bool = False) -> bool:
        if not self._enters(queued):
            return False
        pod = queued.pod
        self._active.put(queued, (-pod.priority, queued.since))
        if named:
            self.nominator.add(pod)
        self._stirred.set()
        return True

    def _back_off(self, queued: QueuedPod) -> bool:
        if not self._enters(queued):
            return False
        expires = self._expires(queued)
        if queued.rejectors:
            self._backing_off.put(queued, (expires, -queued.pod.priority, queued.since))
        else:
            self._after_errors.put(queued, (expires,))
        self._stirred.set()
        if self._flush is None:
            self._flush = self._at(math.floor(self._clock.now() + _HAIR) + 1, self._flush_completed)
        return True

    def _enters(self, queued: QueuedPod) -> bool:
        """Whether no plugin gates the pod out of the queue."""
        pod = queued.pod
        gate = ""
        if pod.gates:
            gate = SCHEDULING_GATES
        elif self._preempting(pod.uid):
            gate = DEFAULT_PREEMPTION
        queued.gate = gate
        if gate:
            queued.rejectors[gate] = None
            self._set_aside(queued)
            return False
        self._waiting.pop(pod.key, None)
        return True

    def _set_aside(self, queued: QueuedPod) -> None:
        self._waiting[queued.pod.key] = queued
        if self._leftovers is None:
            now = self._clock.now()
            ticks = math.floor((now - self._begun + _HAIR) / _LOOK_FOR_THEM) + 1
            self._leftovers = self._at(self._begun + ticks * _LOOK_FOR_THEM, self._flush_leftovers)

    # -- time ----------------------------------------------------------------------------------------------------

    def _expires(self, queued: QueuedPod) -> float:
        """When its back-off ends; 0 if it has none."""
        failures = queued.errors or queued.rejections
        if not failures or not self._longest:
            return 0.0
        pause = self._longest if failures > 60 else min(self._initial * 2 ** (failures - 1), self._longest)
        return float(math.floor(queued.since + pause + _HAIR))

    def _still_backing_off(self, queued: QueuedPod) -> bool:
        # A back-off that ends within the current second is not over yet.
        return self._expires(queued) >= math.floor(self._clock.now() + _HAIR)

    def _at(self, moment: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, moment - self._clock.now()), work)

    def _flush_completed(self) -> None:
        self._flush = None
        for line in (self._backing_off, self._after_errors):
            while (queued := line.first()) is not None and not self._still_backing_off(queued):
                line.pop()
                self._active.put(queued, (-queued.pod.priority, queued.since))
                self._stirred.set()
        if self._backing_off or self._after_errors:
            self._flush = self._at(math.floor(self._clock.now() + _HAIR) + 1, self._flush_completed)

    def _flush_leftovers(self) -> None:
        self._leftovers = None
        now = self._clock.now()
        late = [each for each in self._waiting.values() if now - each.since > LONGEST_WAIT]
        if late:
            self._move(late, News(ClusterEvent.TIMEOUT))
        if self._waiting:
            self._leftovers = self._at(now + _LOOK_FOR_THEM, self._flush_leftovers)
