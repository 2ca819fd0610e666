"""Cluster port: runs an ESL against a real API server. It uses only pods and node status.

    watch on the pods of a namespace, and on nodes --events--> ESL --effects--> pods created, deleted and evicted,
                                                                                node status patched

The ESL decides at once, in the event loop. The driver carries out effects in lanes: one lane per pod and one per node.
Effects of one lane run in order, and all lanes run concurrently. All waiting effects of a node go into one PATCH. The
driver retries unanswered requests as long as it runs, and reports refused requests to the ESL.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Self

import structlog

from extender.adapters.kubernetes.appspace.node_facts import NodeFacts
from extender.adapters.kubernetes.codecs.kinds import nodes
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.adapters.kubernetes.writers.pod_changes import PodChanges, Template
from extender.adapters.kubernetes.writers.writers import ApiNodeStatusWriter
from extender.adapters.translation.objects import to_pod
from extender.adapters.translation.pod_sizes import outlined
from extender.app.contracts.ports import PodOwner
from extender.app.objects.retry import until_answered
from extender.core.cluster import Pod
from extender.core.common.backoff import BackOff
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    Effect,
    EffectRefused,
    Esl,
    Event,
    NodeGone,
    NodeSeen,
    Notice,
    RemoveCapacity,
    Report,
    SetCapacity,
    lane_of,
)
from extender.esl.gangs.departed import Keys
from extender.esl.runtime.facts import Nodes, PodFacts
from extender.esl.runtime.policy_loop import PolicyLoop
from extender.esl.runtime.several import Several
from extender.kube import objects
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone, Refused
from extender.kube.names import NodeName, ResourceKey

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_NO_LIMIT = float("inf")

_log = structlog.get_logger(__name__)


class EslDriver:
    """Runs one ESL while its `async with` block lasts; `report` gets each of its reports."""

    def __init__(
        self,
        requests: Requests,
        esl: Esl | Several,
        report: Callable[[Report], None],
        *,
        namespace: str,
        owner: PodOwner | None = None,
        instance: str = "",
        notice: Callable[[Notice], None] = lambda notice: None,
        template: Template = lambda launch: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`owner`: Kubernetes deletes the ghosts with this pod, even if this process has died.

        The ghosts stay while the owner exists, even if it has Completed. The members should have the same owner:
        otherwise running members go on without room when their ghosts are deleted. `instance`: the label of the ghosts
        that names their creator; it may change later. If `esl` is `Several`, it also gets node events, and the first
        state in one call. `notice` is called with each notice. `template` returns the manifest from which a task's pod
        is built.
        """
        self._requests = requests
        self._several = esl if isinstance(esl, Several) else None
        self._work = PolicyLoop(esl, self._on_event, self._failed)
        self._report = report
        self._notice = notice
        self._namespace = namespace
        self._sleep = sleep
        self._node_status = ApiNodeStatusWriter(requests)
        self._changes = PodChanges(requests, owner, template)
        self._changes.instance = instance
        told: Collection[str] | None = None if self._several is None else self._several.domains
        self._node_facts = NodeFacts(
            namespace,
            lambda *seen: self.put(CapacitySeen(*seen)),
            None
            if told is None
            else Nodes(told, lambda node: self.put(NodeSeen(node)), lambda name: self.put(NodeGone(name))),
        )
        self._pods = PodFacts(self.put)
        self._first: list[Event] | None = None if self._several is None else []
        """Events for `Several` until the first lists are complete; otherwise None."""
        self._lanes: dict[str, deque[Effect]] = {}

    @property
    def changed(self) -> asyncio.Event:
        """Set after each event that the ESL has handled; clear it to wait for the next one."""
        return self._work.changed

    @property
    def instance(self) -> str:
        return self._changes.instance

    @instance.setter
    def instance(self, instance: str) -> None:
        self._changes.instance = instance

    async def __aenter__(self) -> Self:
        self._work.begin()
        path = address("api", "v1", "namespaces", self._namespace, "pods")
        # kube-scheduler and the extender alone limit how long members may wait, so there is no limit here.
        kind = WatchedKind("pods", path, objects.Pod, lambda pod: to_pod(pod, _NO_LIMIT), outlined)
        facts = self._node_facts
        pods = Reflector(self._requests, kind, self._pods)
        followed = Reflector(self._requests, nodes(), facts, before_list=facts.before_list)
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
        if self._several is not None:
            first, self._first = self._first or [], None
            self.perform(self._several.begin(first, self.now()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._work.end()

    def now(self) -> float:
        """The ESL's time in seconds."""
        return self._work.now()

    def known_pods(self) -> Iterable[Pod]:
        """The pods of the namespace as the watch last showed them."""
        return list(self._pods.known.values())

    def known_keys(self) -> Keys:
        """The namespace's resources on each node, as last seen or written."""
        return self._node_facts.keys

    def put(self, event: Event) -> None:
        """Passes the event to the ESL, or keeps it until the first lists are complete."""
        if self._first is not None:
            self._first.append(event)
        else:
            self._work.put(event)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Starts these effects, and sets the timer for the ESL's next due time."""
        self._work.perform(effects)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` until the block ends. If it fails, leaving the block raises its error."""
        return self._work.spawn(work)

    async def until(self, holds: Callable[[], bool], within: float) -> None:
        """Returns when `holds()` is true or something has failed. Raises TimeoutError."""
        await self._work.until(holds, within)

    @property
    def failure(self) -> BaseException | None:
        """The first error of the ESL or of a spawned task."""
        return self._work.failure

    def _on_event(self, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._report(effect)
        elif isinstance(effect, Notice):
            self._notice(effect)
        else:
            self._enqueue(lane_of(effect), effect)

    def _failed(self, error: BaseException) -> None:
        _log.error("a defect: the ESL has stopped", exc_info=error)

    # -- lanes ---------------------------------------------------------------------------------------------------

    def _enqueue(self, lane: str, effect: Effect) -> None:
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(effect)
            return
        self._lanes[lane] = deque([effect])
        self.spawn(self._drain(lane))

    async def _drain(self, lane: str) -> None:
        waiting = self._lanes[lane]
        carry_out = self._patch_node if lane.startswith("node ") else self._write_pod
        while waiting:
            back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
            await until_answered(
                lambda: carry_out(waiting), back_off=back_off, sleep=self._sleep, what="effect", lane=lane
            )
        del self._lanes[lane]

    async def _patch_node(self, waiting: deque[Effect]) -> None:
        """Writes the net result of the node's waiting effects in one PATCH, and reports it."""
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
            version = await self._node_status.advertise(node, desired, [r for r in latest if r not in desired])
        except Gone:
            desired = {}
        except Refused as error:
            refusal = error
        for _ in range(taken):
            waiting.popleft()
        for effect in latest.values():
            if refusal is not None:
                self.put(EffectRefused(effect, str(refusal)))
            else:
                self.put(CapacityConfirmed(node, effect.resource, desired.get(effect.resource, 0)))
        if refusal is None:
            self._node_facts.wrote(node, version, {resource: desired.get(resource, 0) for resource in latest})

    async def _write_pod(self, waiting: deque[Effect]) -> None:
        event = await self._changes.carry_out(waiting[0])
        waiting.popleft()
        if event is not None:
            self.put(event)
