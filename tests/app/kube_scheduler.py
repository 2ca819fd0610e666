"""kube-scheduler, played: a queue, a fit of its own, one filter call at a time, binds that overlap and time out.

It does what the real one was seen to do, and where that varies, the less friendly: a pod that was rejected is tried
again when it is touched itself, when a node changes, when a pod leaves a node; not after five minutes. A call that
fails costs the pod a back-off that nothing cuts short. For `played_town` alone, which says why it is not the embedded
cluster's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.ports import PodRef
from extender.core.cluster import Node, Pod
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts
from tests.app.pod_server import Follower, PodServer

MINE = "escher"
"""`schedulerName` of the pods that it cares for."""
_CYCLE = 0.001
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 1.0, 10.0


class Extender(Protocol):
    """Both raise ConnectionError where nobody answers."""

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict: ...

    async def bind(self, pod: PodRef, node: NodeName) -> str: ...


class KubeScheduler:
    """One life of it. `extender`: whoever answers at that address now."""

    def __init__(self, server: PodServer, extender: Callable[[], Extender], *, http_timeout: float = 60.0) -> None:
        self.nodes: dict[NodeName, Node] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.assumed: dict[PodUid, NodeName] = {}
        """Pods that it counts on a node and has not seen bound."""
        self.asleep: dict[PodUid, str] = {}
        """Pods that were rejected, and why."""
        self.refused: list[tuple[str, str]] = []
        """(pod, why) of every bind that failed: its own events say so."""
        self._extender = extender
        self._http_timeout = http_timeout
        self._active: dict[PodUid, None] = {}
        self._backing_off: dict[PodUid, asyncio.TimerHandle] = {}
        self.failures: Counter[PodUid] = Counter()
        """How often a pod's calls have failed in a row: so long is its next back-off."""
        self._cycles = 0
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.follower = Follower(server, _Nodes(self), _Pods(self))
        self.follower.list()
        self._start(self._run())

    def end(self) -> None:
        """It is dead. Calls that it has made go on at the other side."""
        self.follower.end()
        for task in list(self._tasks):
            task.cancel()
        for timer in self._backing_off.values():
            timer.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what it sees --------------------------------------------------------------------------------------------

    def see_node(self, node: Node) -> None:
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        if known != node:
            self.wake_all()

    def see_pod(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if pod.node is not None:
            self.assumed.pop(pod.uid, None)
            self.asleep.pop(pod.uid, None)
            self._active.pop(pod.uid, None)
        elif pod.gated or pod.at_our_gate:
            return
        elif pod.scheduler == MINE and not (pod.deleting or pod.uid in self.assumed or pod.uid in self._backing_off):
            self._queue(pod.uid)

    def lose_pod(self, uid: PodUid) -> None:
        pod = self.pods.pop(uid, None)
        self.asleep.pop(uid, None)
        self._active.pop(uid, None)
        if (timer := self._backing_off.pop(uid, None)) is not None:
            timer.cancel()
        if pod is not None and pod.node is not None:
            self.assumed.pop(uid, None)
            self.wake_all()

    def wake_all(self) -> None:
        for uid in list(self.asleep):
            self._queue(uid)

    def _queue(self, uid: PodUid) -> None:
        self.asleep.pop(uid, None)
        self._active[uid] = None
        self._news.set()

    def _back_off(self, uid: PodUid) -> None:
        pause = min(_FIRST_BACK_OFF * 2 ** self.failures[uid], _LONGEST_BACK_OFF)
        self.failures[uid] += 1

        def over() -> None:
            del self._backing_off[uid]
            self._queue(uid)

        self._backing_off[uid] = asyncio.get_running_loop().call_later(pause, over)

    # -- what it does --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            while not self._active:
                self._news.clear()
                await self._news.wait()
            uid = next(iter(self._active))
            del self._active[uid]
            pod = self.pods.get(uid)
            if pod is not None and pod.node is None and not pod.deleting and uid not in self.assumed:
                await asyncio.sleep(_CYCLE)
                self._try(pod)

    def _try(self, pod: Pod) -> None:
        feasible = [name for name, node in self.nodes.items() if accepts(node, pod) and self._fits(pod, node)]
        if not feasible:
            self.asleep[pod.uid] = "no node has room"
            return
        self._cycles += 1
        start = self._cycles % len(feasible)
        try:
            verdict = self._extender().filter(pod, [*feasible[start:], *feasible[:start]])
        except ConnectionError as error:
            verdict = Verdict(error=str(error))
        if verdict.error:
            self._back_off(pod.uid)
            return
        if not verdict.passed:
            self.asleep[pod.uid] = next(iter([*verdict.rejected.values(), *verdict.unresolvable.values()]))
            return
        self.assumed[pod.uid] = verdict.passed[0]
        self._start(self._bind(pod, verdict.passed[0]))

    def _fits(self, pod: Pod, node: Node) -> bool:
        held: Counter[str] = Counter()
        for uid, other in self.pods.items():
            if node.name in (other.node, self.assumed.get(uid)) and not other.finished:
                held.update(other.requests)
        return all(held[r] + units <= node.allocatable.get(r, 0) for r, units in pod.requests.items())

    async def _bind(self, pod: Pod, node: NodeName) -> None:
        try:
            async with asyncio.timeout(self._http_timeout):
                refusal = await self._extender().bind(PodRef(pod.namespace, pod.name, pod.uid), node)
        except TimeoutError:
            refusal = "context deadline exceeded"
        except ConnectionError as error:
            refusal = str(error)
        if not refusal:
            self.failures.pop(pod.uid, None)
            return
        self.refused.append((pod.name, refusal))
        self.assumed.pop(pod.uid, None)
        self.wake_all()
        if pod.uid in self.pods and self.pods[pod.uid].node is None:
            self._back_off(pod.uid)


class _Nodes:
    def __init__(self, scheduler: KubeScheduler) -> None:
        self._scheduler = scheduler

    def replace(self, objects: Iterable[Node]) -> Iterable[None]:
        present = {node.name: node for node in objects}
        for name in [name for name in self._scheduler.nodes if name not in present]:
            del self._scheduler.nodes[name]
        for node in present.values():
            self._scheduler.see_node(node)
        return ()

    def upsert(self, item: Node) -> None:
        self._scheduler.see_node(item)

    def remove(self, item: Node) -> None:
        self._scheduler.nodes.pop(item.name, None)


class _Pods:
    def __init__(self, scheduler: KubeScheduler) -> None:
        self._scheduler = scheduler

    def replace(self, objects: Iterable[Pod]) -> Iterable[None]:
        present = {pod.uid: pod for pod in objects}
        for uid in [uid for uid in self._scheduler.pods if uid not in present]:
            self._scheduler.lose_pod(uid)
        for pod in present.values():
            if self._scheduler.pods.get(pod.uid) != pod:
                self._scheduler.see_pod(pod)
        return ()

    def upsert(self, item: Pod) -> None:
        self._scheduler.see_pod(item)

    def remove(self, item: Pod) -> None:
        self._scheduler.lose_pod(item.uid)
