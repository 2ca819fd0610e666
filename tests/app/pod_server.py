"""An API server's pods and nodes in memory, for several clients at once, each with calls and watches of its own.

A call takes time on its way there and back; what a client has sent arrives although the client dies meanwhile, unless
it is lost with it. No two calls take equally long, so that Bindings sent at one moment are written one after the other.
For `played_town` alone, which says why it is not the embedded cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from extender.app.contracts.ports import Notice, PodRef, Sink
from extender.core.attempt import read_attempt
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import Fault, LoopClock, Watch
from tests.performing import at_once

T = TypeVar("T")

_GARBAGE_STAYS = 40.0
_USUAL_STOP = 0.1
_REMOVAL = 0.01
"""Seconds from the moment at which a kubelet has written that a pod has ended to that at which it is gone."""


@dataclass
class Late(Fault):
    """A fault that is told only after so many seconds: a call that is never answered, until its client gives it up."""

    seconds: float = 30.0


class PodServer:
    """What is there. `grace`: seconds that the containers of a bound pod take to end; `faults` as `PodApi` has them.

    Kubelets are as real ones are since 1.27: a bound pod that is deleted is first being deleted, then has failed, and
    then is gone. On a node that is gone nothing happens until the garbage collector comes.
    """

    def __init__(self, clock: LoopClock, *, latency: float = 0.01) -> None:
        self.clock = clock
        self.pods: dict[PodUid, Pod] = {}
        self.nodes: dict[NodeName, Node] = {}
        self.notices: list[Notice] = []
        self.evicted: set[PodUid] = set()
        self.calls: list[tuple[float, str]] = []
        """(Seconds of the loop at its begin, the call): `bind`, `where`, `evict`, `wake`, `open`, `tell`; and whom."""
        self.faults: list[Fault] = []
        self.away = False
        self.grace = _USUAL_STOP
        self.followers: list[Follower] = []
        self.ended: list[Callable[[Pod], None]] = []
        """Told of each pod that is gone."""
        self.witnesses: list[Callable[[], None]] = []
        """Told whenever a pod has changed."""
        self._latency = latency

    def times(self, what: str) -> list[float]:
        return [when for when, call in self.calls if call == what]

    def takes(self) -> float:
        """Seconds on the way there, and as many back."""
        return self._latency * (1 + 0.1 * (len(self.calls) % 8))

    # -- what others do ------------------------------------------------------------------------------------------

    def create(self, *pods: Pod) -> None:
        for pod in pods:
            self._put(replace(pod, created=float(int(self.clock.now()))))

    def delete(self, uid: PodUid, *, by_force: bool = False) -> None:
        pod = self.pods[uid]
        if pod.node is None or pod.finished or by_force:
            self._end(uid)
        elif not pod.deleting:
            self._put(replace(pod, deleting=True))
            asyncio.get_running_loop().call_later(self.grace, self._stopped, uid)

    def _stopped(self, uid: PodUid) -> None:
        """Its containers have ended, one of them at least as SIGTERM makes it end."""
        pod = self.pods.get(uid)
        if pod is not None and pod.node in self.nodes:
            self.finish(uid, succeeded=False)
            asyncio.get_running_loop().call_later(_REMOVAL, self._end, uid)

    def finish(self, uid: PodUid, *, succeeded: bool) -> None:
        """Its phase is Succeeded or Failed from now on."""
        pod = self.pods[uid]
        if not pod.finished:
            self._put(replace(pod, finished=True, succeeded=succeeded))

    def _end(self, uid: PodUid) -> None:
        if (pod := self.pods.pop(uid, None)) is None:
            return
        for follower in self.followers:
            follower.hear(follower.pods, "DELETED", pod)
        self._witnessed()
        for told in self.ended:
            told(pod)

    def place(self, uid: PodUid, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """The pod is bound, whoever did it, and has the annotations of its Binding."""
        attempt = read_attempt(annotations or {}, uid)
        bound_at = float(int(self.clock.now()))
        self._put(replace(self.pods[uid], node=NodeName(node), bound_at=bound_at, attempt=attempt))

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        for follower in self.followers:
            follower.hear(follower.nodes, "MODIFIED", node)

    def drop_node(self, name: str) -> None:
        """The node is gone; its pods stay until the garbage collector ends them."""
        node = self.nodes.pop(NodeName(name))
        for follower in self.followers:
            follower.hear(follower.nodes, "DELETED", node)
        asyncio.get_running_loop().call_later(_GARBAGE_STAYS, self._collect)

    def _collect(self) -> None:
        for pod in list(self.pods.values()):
            if pod.node is not None and pod.node not in self.nodes:
                self.finish(pod.uid, succeeded=False)
                self._end(pod.uid)

    def _put(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        for follower in self.followers:
            follower.hear(follower.pods, "MODIFIED", pod)
        self._witnessed()

    def _witnessed(self) -> None:
        for look in self.witnesses:
            look()

    def go_away(self) -> None:
        self.away = True

    def come_back(self, *, relist: bool = False) -> None:
        """`relist`: its clients cannot take up their watches, and list again."""
        self.away = False
        if relist:
            for follower in self.followers:
                follower.list()

    # -- what a client asks for ----------------------------------------------------------------------------------

    def known(self, ref: PodRef) -> Pod:
        pod = self.pods.get(ref.uid)
        if pod is None:
            raise Gone(404, f"pods {ref.name!r} not found")
        return pod

    def bind(self, ref: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
        """As the real one, it does not ask whether there is such a node."""
        pod = self.known(ref)
        if pod.deleting:
            raise Occupied(409, f"pod {ref.name} is being deleted, cannot be assigned to a host")
        if pod.node is not None:
            raise Occupied(409, f"pod {ref.name} is already assigned to node {pod.node!r}")
        self.place(ref.uid, node, annotations)

    def touch(self, ref: PodRef) -> None:
        self._put(self.known(ref))

    def void_attempt(self, ref: PodRef) -> None:
        self._put(replace(self.known(ref), attempt=None))

    def open_gate(self, ref: PodRef) -> None:
        self._put(replace(self.known(ref), at_our_gate=False))

    def note(self, notice: Notice) -> None:
        if notice not in self.notices:
            self.notices.append(notice)

    def evict(self, ref: PodRef) -> None:
        if not self.known(ref).deleting:
            self.evicted.add(ref.uid)
            self.delete(ref.uid)


class Line:
    """One client's connection: `ports.Binder`, `Evictor`, `Disruptions`, `Nominator`, `Waker` and `Recorder`."""

    def __init__(self, server: PodServer) -> None:
        self._server = server
        self._is_cut = False
        self._on_the_way: set[asyncio.TimerHandle] = set()
        self._waiting: set[asyncio.Future[Any]] = set()

    def cut(self, *, losing: bool) -> None:
        """The client is dead: it sends nothing and hears nothing. `losing`: what it has just sent does not arrive."""
        self._is_cut = True
        for sent in self._on_the_way if losing else ():
            sent.cancel()
        for answer in list(self._waiting):
            answer.cancel()

    async def bind(self, pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
        await self._call(f"bind {pod.name}", lambda: self._server.bind(pod, node, annotations))

    async def node_of(self, pod: PodRef) -> NodeName | None:
        return (await self._call(f"where {pod.name}", lambda: self._server.known(pod))).node

    async def evict(self, pod: PodRef, *, dry_run: bool = False) -> None:
        if dry_run:
            await self._call(f"try to evict {pod.name}", lambda: self._server.known(pod))
        else:
            await self._call(f"evict {pod.name}", lambda: self._server.evict(pod))

    async def preempt(self, pod: PodRef, why: str, *, dry_run: bool = False) -> None:
        """As `evict`: there are no budgets."""
        await self.evict(pod, dry_run=dry_run)

    async def budgets(self, namespace: str) -> Sequence[Budget]:
        """There are none."""
        return await self._call(f"budgets {namespace}", tuple)

    async def nominate(self, pod: PodRef, node: NodeName | None) -> None:
        await self._call(f"nominate {pod.name}", lambda: self._server.touch(pod))

    async def wake(self, pod: PodRef, token: str) -> None:
        await self._call(f"wake {pod.name}", lambda: self._server.touch(pod))

    async def void_attempt(self, pod: PodRef) -> None:
        await self._call(f"void {pod.name}", lambda: self._server.void_attempt(pod))

    async def open_gate(self, pod: PodRef) -> None:
        await self._call(f"open {pod.name}", lambda: self._server.open_gate(pod))

    async def record(self, notice: Notice) -> None:
        await self._call(f"tell {notice.pod.name}", lambda: self._server.note(notice))

    async def _call(self, what: str, do: Callable[[], T]) -> T:
        loop, server = asyncio.get_running_loop(), self._server
        answer: asyncio.Future[T] = loop.create_future()
        if self._is_cut:
            raise asyncio.CancelledError
        server.calls.append((loop.time(), what))
        fault = next((each for each in server.faults if what.startswith(each.of)), None)
        if fault is not None:
            server.faults.remove(fault)
        takes = server.takes()

        def arrive() -> None:
            self._on_the_way.discard(handle)
            tell: Callable[[], None]
            try:
                if server.away:
                    raise Unavailable("connection refused")
                if fault is not None and not fault.after:
                    raise fault.error
                result = do()
                if fault is not None:
                    raise fault.error
                tell = partial(answer.set_result, result)
            except (Refused, Unavailable) as error:
                tell = partial(answer.set_exception, error)
            loop.call_later(fault.seconds if isinstance(fault, Late) else takes, settle, tell)

        def settle(tell: Callable[[], None]) -> None:
            if not answer.done():
                tell()

        handle = loop.call_later(takes, arrive)
        self._on_the_way.add(handle)
        self._waiting.add(answer)
        answer.add_done_callback(self._waiting.discard)
        return await answer


class Follower:
    """One client's watches. `delay`: seconds by which they are late; `twice`: every event is told two times."""

    def __init__(self, server: PodServer, nodes: Sink[Node], pods: Sink[Pod], *, delay: float = 0.0) -> None:
        self._server = server
        self.nodes, self.pods = Watch(nodes, delay=delay), Watch(pods, delay=delay)
        self.twice = False
        server.followers.append(self)

    def hear(self, watch: Watch, what: str, item: Node | Pod) -> None:
        for _ in range(2 if self.twice else 1):
            watch.add(what, item)

    def list(self) -> None:
        """What is there now, instead of everything that was still to be told."""
        for watch, items in self._both():
            watch.events.clear()
            if watch.sink is not None:
                at_once(watch.sink.replace(items))

    def hold(self) -> None:
        """Nothing more is told, until `go_on` or `list`."""
        for watch, _ in self._both():
            watch.held = True

    def go_on(self) -> None:
        for watch, _ in self._both():
            watch.held = False
            watch.deliver()

    def end(self) -> None:
        if self in self._server.followers:
            self._server.followers.remove(self)
        for watch, _ in self._both():
            watch.sink = None

    def _both(self) -> Iterable[tuple[Watch, Iterable[Node | Pod]]]:
        return ((self.nodes, list(self._server.nodes.values())), (self.pods, list(self._server.pods.values())))
