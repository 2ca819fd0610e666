"""Cluster port: an ESL at work on a real API server, with nothing but pods and node status.

    watch on the pods of a namespace, and on nodes --events--> ESL --effects--> pods created, deleted and evicted,
                                                                                node status patched

The ESL decides at once, in the event loop; effects are carried out in lanes, one per pod and one per node: in order
within a lane, all lanes at the same time. What waits for one node goes there in one PATCH. What fails for want of an
answer is tried again for as long as this runs; what is refused is told to the ESL. Knows no policy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self

import msgspec
import structlog

from extender.adapters.kube.kinds import WatchedKind, nodes
from extender.adapters.kube.node_facts import NodeFacts
from extender.adapters.kube.reflector import Reflector
from extender.adapters.kube.writers import ApiEvictor, ApiNodeStatusWriter
from extender.adapters.objects import to_pod
from extender.app.insisting import insist
from extender.app.ports import PodOwner, PodRef
from extender.core.back_off import BackOff
from extender.core.cluster import Pod
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Esl,
    Event,
    EvictMember,
    Ghost,
    Notice,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    TimePassed,
    lane_of,
)
from extender.esl.gang_left import GHOST_LABEL, Keys
from extender.esl.ghost_manifest import ghost_manifest
from extender.kube import objects
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.requests import METADATA_ONLY, Requests, address

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_NO_LIMIT = float("inf")

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Metadata


_labelled = msgspec.json.Decoder(_Labelled)


class EslDriver:
    """Runs one ESL while its `async with` block lasts; `report` is called with each of its reports."""

    def __init__(
        self,
        requests: Requests,
        esl: Esl,
        report: Callable[[Report], None],
        *,
        namespace: str,
        owner: PodOwner | None = None,
        instance: str = "",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`owner`: a pod with whose deletion Kubernetes deletes the ghosts, should this process not live to do it. As
        long as it is there they are, though it has Completed. The members should have it as an owner too: without,
        those that run would run on without room.

        `instance`: what the ghosts are to say of who made them; it may be set anew.
        """
        self.instance = instance
        self.changed = asyncio.Event()
        """Set whenever the ESL has been told something; clear it to wait for the next time."""
        self._requests = requests
        self._esl = esl
        self._report = report
        self._namespace = namespace
        self._owner = owner
        self._sleep = sleep
        self._nodes = ApiNodeStatusWriter(requests)
        self._evictor = ApiEvictor(requests)
        self._node_facts = NodeFacts(namespace, lambda *seen: self.tell(CapacitySeen(*seen)))
        self._lanes: dict[str, deque[Effect]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pods = PodFacts(self.tell)
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        path = address("api", "v1", "namespaces", self._namespace, "pods")
        # How long members may wait for each other is kube-scheduler's affair with the extender only.
        kind = WatchedKind("pods", path, objects.Pod, lambda pod: to_pod(pod, _NO_LIMIT))
        facts = self._node_facts
        pods = Reflector(self._requests, kind, self._pods)
        followed = Reflector(self._requests, nodes(), facts, on_rewind=facts.rewound)
        following = [self.spawn(pods.run()), self.spawn(followed.run())]

        async def synced() -> None:
            await pods.synced.wait()
            await followed.synced.wait()

        waiting = asyncio.create_task(synced())
        await asyncio.wait([*following, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for each in following:
            if each.done():
                await each
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def now(self) -> float:
        """Seconds, as the ESL is told them."""
        return self._loop.time()

    def known_pods(self) -> Iterable[Pod]:
        """The pods of the namespace as they were last seen."""
        return list(self._pods.known.values())

    def known_keys(self) -> Keys:
        """The resources in the namespace's name that nodes have, as was last seen or written."""
        return self._node_facts.keys

    def tell(self, event: Event) -> None:
        """The ESL has taken the event in, and what it wants done is under way."""
        self.perform(self._esl.handle(event, self.now()))

    def perform(self, effects: Iterable[Effect]) -> None:
        """These are under way; what is due later will be."""
        for effect in effects:
            if isinstance(effect, Report):
                self._report(effect)
            elif not isinstance(effect, Notice):
                self._enqueue(lane_of(effect), effect)
        self._set_timer()
        self.changed.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._esl.next_deadline()
        self._timer = None if due is None else self._loop.call_at(due, self.tell, TimePassed())

    # -- lanes ---------------------------------------------------------------------------------------------------

    def _enqueue(self, lane: str, effect: Effect) -> None:
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(effect)
            return
        self._lanes[lane] = deque([effect])
        self.spawn(self._drain(lane))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """It is under way until the block is left; should it fail, leaving raises why."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            _log.error("a defect: the ESL is no longer followed", exc_info=task.exception())

    async def _drain(self, lane: str) -> None:
        waiting = self._lanes[lane]
        carry_out = self._patch_node if lane.startswith("node ") else self._write_pod
        while waiting:
            back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
            await insist(lambda: carry_out(waiting), back_off=back_off, sleep=self._sleep, what="effect", lane=lane)
        del self._lanes[lane]

    async def _patch_node(self, waiting: deque[Effect]) -> None:
        """The node says what the effects that wait for it come to, in one PATCH."""
        latest: dict[ResourceKey, SetCapacity | RemoveCapacity] = {}
        node = NodeName("")
        taken = len(waiting)
        for effect in waiting:
            assert isinstance(effect, SetCapacity | RemoveCapacity)
            node, latest[effect.resource] = effect.node, effect
        desired = {each.resource: each.units for each in latest.values() if isinstance(each, SetCapacity)}
        refusal: Refused | None = None
        version = ""
        try:
            version = await self._nodes.advertise(node, desired, [r for r in latest if r not in desired])
        except Gone:
            desired = {}
        except Occupied as error:
            # The patch asks for no version: it has met other writes, and will do when it is tried again.
            raise Unavailable(str(error)) from error
        except Refused as error:
            refusal = error
        for _ in range(taken):
            waiting.popleft()
        for effect in latest.values():
            if refusal is not None:
                self.tell(EffectRefused(effect, str(refusal)))
            else:
                self.tell(CapacityConfirmed(node, effect.resource, desired.get(effect.resource, 0)))
        if refusal is None:
            self._node_facts.wrote(node, version, {resource: desired.get(resource, 0) for resource in latest})

    async def _write_pod(self, waiting: deque[Effect]) -> None:
        effect = waiting[0]
        event: Event | None = None
        try:
            if isinstance(effect, CreateGhost):
                await self._create(effect.ghost)
            elif isinstance(effect, EvictMember):
                await self._evictor.evict(PodRef(effect.namespace, effect.name, effect.uid))
            elif isinstance(effect, DeleteGhost):
                await self._requests.request(
                    "DELETE", address("api", "v1", "namespaces", effect.namespace, "pods", effect.name),
                    _encode({"gracePeriodSeconds": 0}), accept=METADATA_ONLY,
                )  # fmt: skip
        except Refused as error:
            if isinstance(error, Gone) and isinstance(effect, DeleteGhost):
                event = PodGone(effect.namespace, effect.name)
            elif not (isinstance(error, Gone) and isinstance(effect, EvictMember)):
                event = EffectRefused(effect, str(error))
        waiting.popleft()
        if event is not None:
            self.tell(event)

    async def _create(self, ghost: Ghost) -> None:
        body = _encode(ghost_manifest(ghost, self._owner, self.instance))
        path = address("api", "v1", "namespaces", ghost.namespace, "pods")
        try:
            await self._requests.request("POST", path, body, accept=METADATA_ONLY)
        except Occupied as error:
            # By an attempt of ours whose answer was lost, or by somebody else's pod of the same name.
            try:
                found = await self._requests.request("GET", f"{path}/{ghost.name}", accept=METADATA_ONLY)
            except Gone as none:
                # There is no such pod: others were writing to the quota that it is counted in.
                raise Unavailable(str(error)) from none
            if (_labelled.decode(found).metadata.labels or {}).get(GHOST_LABEL) != ghost.group:
                raise


class PodFacts:
    """`ports.Sink` of pods: tells what has happened to each, also what was missed and only a new list shows."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.known: dict[PodUid, Pod] = {}
        self._tell = tell
        self._by_name: dict[str, PodUid] = {}

    def replace(self, objects: Iterable[Pod]) -> None:
        present = {pod.uid: pod for pod in objects}
        for missing in [pod for uid, pod in self.known.items() if uid not in present]:
            self.remove(missing)
        for pod in present.values():
            self.upsert(pod)

    def upsert(self, item: Pod) -> None:
        self.known[item.uid] = item
        self._by_name[item.name] = item.uid
        self._tell(PodSeen(item))

    def remove(self, item: Pod) -> None:
        if self.known.pop(item.uid, None) is None:
            return
        del self._by_name[item.name]
        self._tell(PodGone(item.namespace, item.name))
