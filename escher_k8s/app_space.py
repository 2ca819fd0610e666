"""AppSpace: an application runs gangs by itself, on a cluster port of its own and without the service.

    async with AppSpace(port, namespace="team-a") as gangs:
        run = gangs.start(gang("train", size=8, each={"cpu": "4"}, namespace="team-a"))
        await run.reserved()
        ...  # create the members: run.spec.requirement(i, Approach.EXTENDED_RESOURCES).attach(pod)
        await run.ended()

The ESL decides; the port tells what happens in the cluster, and carries out what is decided. Knows asyncio and its
clock. Must not know Kubernetes' API: what that takes is the port's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, Self

from extender.core.back_off import BackOff
from extender.core.cluster import Owner, Pod
from extender.core.names import GangKey
from extender.esl.base import (
    CancelTask,
    CapacityConfirmed,
    Change,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    LaunchTask,
    News,
    Notice,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    StopTask,
    TimePassed,
    lane_of,
)
from extender.esl.gang_life import USUAL_TIMES, Times
from extender.esl.gang_run import GangRun
from extender.esl.gang_spec import LONGEST_RUN, GangSpec
from extender.esl.gang_turns import GangEsl, Space
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import count

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Refused(Exception):
    """The cluster will not do it, and would not if it were asked again. `str()` says why."""


class Gone(Refused):
    """The pod, the node or the namespace that it is about is not there."""


class TryAgain(Exception):
    """Nobody knows whether it was done: no answer came, or not now. It is tried again, after `after` seconds."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class ClusterPort(Protocol):
    """What the application gives: its way to the cluster."""

    def events(self) -> AsyncIterator[Event]:
        """What happens, for as long as it is read: `PodSeen` and `PodGone` of the namespace's pods (`pod_seen` makes
        them), `CapacitySeen` where a node says something else of our resources than before. First whatever there is;
        what is said twice changes nothing. Raises what it dies of."""
        ...

    async def carry_out(self, change: Change) -> None:
        """It is done, or was so already: changes may come twice. Raises Gone, Refused, TryAgain.

        CreateGhost: a pod as `ghost_manifest(change.ghost)`. DeleteGhost: at once, without grace. EvictMember: by the
        eviction API, for that UID. SetCapacity and RemoveCapacity: in the capacity and allocatable of the node's
        status; removed is not 0, for which a kubelet would fail the pods that ask for it.
        """
        ...


class AppSpace:
    """Any number of gangs of one application in one namespace, while the block lasts.

    An application that is killed leaves ghosts and resources behind. They let nobody in, for every run has keys of its
    own; its ghosts hold room until somebody deletes them, by their label `escher.dev/ghost`.
    """

    def __init__(
        self,
        port: ClusterPort,
        *,
        namespace: str = "default",
        times: Times = USUAL_TIMES,
        seed: int | None = None,
        end_within: float = 10.0,
        on_news: Callable[[Report], None] = lambda report: None,
    ) -> None:
        """`seed` of the pauses' jitter; None: from the system. `end_within`: seconds for what is left when the block
        ends. `on_news` is told everything that happens to the gangs."""
        self._port = port
        self._namespace = namespace
        self._esl = GangEsl(Space.APP, seed=int.from_bytes(os.urandom(8), "big") if seed is None else seed, times=times)
        self._end_within = end_within
        self._on_news = on_news
        self._runs: dict[GangKey, GangRun] = {}
        self._pods: dict[str, PodSeen] = {}
        self._last: dict[str, asyncio.Task[None]] = {}
        """By pod and node: what is done to one is done in order."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._spawn(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Gangs whose members are not running leave nothing behind. Raises what the port died of, and TimeoutError
        where the cluster did not answer in time."""
        gangs = list(self._runs)
        try:
            for run in list(self._runs.values()):
                run.cancel()
            async with asyncio.timeout(self._end_within):
                while self._failure is None and not all(map(self._esl.settled, gangs)):
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._failure is not None:
                raise self._failure

    def start(self, spec: GangSpec) -> GangRun:
        """The gang is wanted; its members are made from the answer's `spec`.

        Raises ValueError for another namespace, and while one of that name has not ended; InvalidName where a key
        would be too long.
        """
        if spec.gang.namespace != self._namespace:
            raise ValueError(f"gang {spec.gang} is not in namespace {self._namespace!r}, whose pods are followed here")
        # As long as may be: a token that no collector of others' remains takes for one of those that it looks after.
        spec = spec if spec.run else spec.with_run(os.urandom(LONGEST_RUN).hex()[:LONGEST_RUN])
        effects = self._esl.start(spec, self._loop.time())
        run = GangRun(spec, lambda: self._esl.phase(spec.gang), lambda: self._cancel(spec.gang))
        self._runs[spec.gang] = run
        self._perform(effects)
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        for seen in [each for each in self._pods.values() if not keys.isdisjoint(each.pod.requests)]:
            self._tell(seen)
        return run

    def _cancel(self, gang: GangKey) -> None:
        self._perform(self._esl.cancel(gang, self._loop.time()))

    # -- what happens, and what is done --------------------------------------------------------------------------

    async def _follow(self) -> None:
        async for event in self._port.events():
            if isinstance(event, PodSeen):
                self._pods[event.pod.name] = event
            elif isinstance(event, PodGone):
                self._pods.pop(event.name, None)
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self._perform(self._esl.handle(event, self._loop.time()))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Report):
                self._report(effect)
            elif not isinstance(effect, Notice | LaunchTask | CancelTask | StopTask):
                self._do(lane_of(effect), effect)
        if self._timer is not None:
            self._timer.cancel()
        due = self._esl.next_deadline()
        self._timer = None if due is None else self._loop.call_at(due, self._tell, TimePassed())
        self._changed.set()

    def _report(self, report: Report) -> None:
        self._on_news(report)
        run = self._runs.get(report.subject)
        if run is not None and run.spec.run == report.run:
            if report.news in (News.ENDED, News.FAILED):
                del self._runs[report.subject]
            run.take(report)

    def _do(self, what: str, change: Change) -> None:
        before = self._last.get(what)
        task = self._last[what] = self._spawn(self._carry_out(change, before))
        task.add_done_callback(lambda done: self._last.pop(what) if self._last.get(what) is done else None)

    async def _carry_out(self, change: Change, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self._port.carry_out(change)
            except TryAgain as error:
                await asyncio.sleep(back_off.failed(error.after))
            except Gone as error:
                return self._done_without(change, error)
            except Refused as error:
                return self._tell(EffectRefused(change, str(error)))
            else:
                if isinstance(change, SetCapacity | RemoveCapacity):
                    units = change.units if isinstance(change, SetCapacity) else 0
                    self._tell(CapacityConfirmed(change.node, change.resource, units))
                return None

    def _done_without(self, change: Change, error: Gone) -> None:
        """What is not there needs no deletion, has no resources, and is evicted already."""
        match change:
            case DeleteGhost(namespace, name, _):
                self._tell(PodGone(namespace, name))
            case SetCapacity(node, resource) | RemoveCapacity(node, resource):
                self._tell(CapacityConfirmed(node, resource, 0))
            case CreateGhost():
                self._tell(EffectRefused(change, str(error)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._changed.set()
            for run in list(self._runs.values()):
                run.fail(error)


def pod_seen(manifest: Mapping[str, Any]) -> PodSeen:
    """The event of a pod as Kubernetes' JSON has it, with what an ESL reads of one."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    requests: dict[ResourceKey, int] = {}
    for container in spec["containers"]:
        for key, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            requests[ResourceKey(key)] = requests.get(ResourceKey(key), 0) + count(key, str(quantity))
    controller = next((each for each in metadata.get("ownerReferences") or [] if each.get("controller")), None)
    phase, node, created = status.get("phase"), spec.get("nodeName"), metadata.get("creationTimestamp")
    return PodSeen(
        Pod(
            uid=PodUid(metadata["uid"]),
            namespace=metadata["namespace"],
            name=metadata["name"],
            requests={key: units for key, units in requests.items() if units},
            node=NodeName(node) if node else None,
            created=datetime.fromisoformat(created).timestamp() if created else 0.0,
            deleting=bool(metadata.get("deletionTimestamp")),
            finished=phase in ("Succeeded", "Failed"),
            succeeded=phase == "Succeeded",
            labels=metadata.get("labels") or {},
            owner=None if controller is None else Owner(controller["kind"], controller["name"], controller["uid"]),
        )
    )
