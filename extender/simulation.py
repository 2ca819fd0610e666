"""A whole cluster with the service in it, in one event loop and without a socket: simulation and tests.

    async with Simulation(seed=7, nodes=100) as simulation:
        await simulation.create(pod, POD)
        await asyncio.sleep(86_400)
        await simulation.restart()

On `sim.virtual_time` a day takes seconds, and the same seed gives the same day: API server, schedulers, kubelets,
controllers and Escher itself take their time from the loop and their chances from the seed. Requests and verbs are the
same bytes as over HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from types import TracebackType
from typing import Any, Self

import msgspec

from extender.bootstrap import Application
from extender.bootstrap import Cluster as Connection
from extender.controlplane import crds, marking, nodes, schedulers
from extender.controlplane.nodes import NodeShape
from extender.core.names import DOMAIN
from extender.kube.errors import Occupied
from extender.kube.requests import JSON
from extender.runtime import Runtime
from extender.settings import Settings
from extender.simulated_service import NoAnswer, ServiceLife, SteppedClock
from kubesim.apiserver.in_process import InProcess
from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_POLICY,
    MUTATING_POLICY_BINDING,
    NAMESPACE,
    NODE,
    Json,
    Kind,
)
from kubesim.scheduler.extender_client import CallableExtender, ExtenderClient, ExtenderFailed
from kubesim.store import Backup

NOWHERE = "http://escher.invalid"
"""Where the schedulers' configuration says that the extender is; nobody asks there."""

ADMIN, SERVICE = "admin", "escher"
"""As whom the user of a simulation asks the API server, and the service in it: the audit tells them apart."""


# What is shipped is read once, for many thousand clusters may be told of it.


@cache
def _definitions() -> list[Json]:
    return crds.shipped_definitions()


@cache
def _marking() -> list[Json]:
    return marking.shipped_policy()


@cache
def _scheduler_configs(marks: bool) -> tuple[Json, Json]:
    ours = schedulers.extender_scheduler(kubeconfig=None, service_url=NOWHERE)
    if not marks:
        ours = schedulers.for_every_pod(ours)
    return ours, schedulers.resources_scheduler(kubeconfig=None)


class Simulation:
    """`latency`: seconds of each request. Enter it; after that the service is ready and the nodes exist."""

    def __init__(
        self,
        *,
        seed: int = 1,
        nodes: int = 0,
        node_shape: NodeShape | None = None,
        node_objects: Sequence[Json] | None = None,
        settings: Settings | None = None,
        latency: float = 0.001,
        scheduler: Mapping[str, Any] | None = None,
        extender: Mapping[str, Any] | None = None,
        marks: bool = True,
    ) -> None:
        """`scheduler`, `extender`: what stands otherwise than as shipped in the KubeSchedulerConfiguration of the
        scheduler that calls the service, and in its entries for the service. `marks`: the API server marks the pods
        that need Escher; else all verbs are asked about every pod."""
        self._seed = seed
        self._latency = latency
        self._settings = settings or Settings.model_validate({})
        self._objects = node_objects
        self._count, self._shape = nodes, node_shape or NodeShape()
        self._scheduler, self._extender, self._marks = scheduler or {}, extender or {}, marks
        self.watches_late_by = 0.0
        """Seconds by which the service hears late what its watches tell, from its next watch on."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.clock = Clock()
        self.cluster = Cluster(
            self.clock,
            seed=self._seed,
            scheduler_configs=self._scheduler_configs(),
            extender=self.extender_client(),
            latency=self._latency,
            pod_annotations=DOMAIN,
        )
        self.requests = self._connection("outside", ADMIN)
        drawn = self._drawn("service")
        self.service_clock = SteppedClock(self.clock)
        """What the service takes for the time of day; `ahead` steps it."""
        self._world = Runtime(self.service_clock, drawn.random, lambda: f"{drawn.getrandbits(64):016x}", at_once=True)
        self._to_service = self.connection_of_service()
        self.lives = 0
        """How many the service has had."""
        self._group = asyncio.TaskGroup()
        self.service: ServiceLife | None = self._new_service()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    def _scheduler_configs(self) -> list[Json]:
        ours, other = _scheduler_configs(self._marks)
        extenders = [{**each, **self._extender} for each in ours["extenders"]]
        return [{**ours, **self._scheduler, "extenders": extenders}, other]

    def _drawn(self, part: str) -> random.Random:
        # One for each part, so that what one draws does not depend on how often another does.
        return random.Random(f"{self._seed} {part}")

    def _connection(self, part: str, user: str) -> InProcess:
        return InProcess(self.cluster.api, latency=self._latency, rng=self._drawn(part), user=user)

    async def _start(self) -> None:
        group = self._group = await self._stack.enter_async_context(self._group)
        running = [group.create_task(self.cluster.run())]
        self._stack.callback(lambda: [task.cancel() for task in running])
        with suppress(Occupied):
            await self.create({"metadata": {"name": self._settings.own_namespace}}, NAMESPACE)
        for definition in _definitions():
            await self.create(definition, CUSTOM_RESOURCE_DEFINITION)
        if self._marks:
            for document, kind in zip(_marking(), (MUTATING_POLICY, MUTATING_POLICY_BINDING), strict=True):
                await self.create(document, kind)
        made = nodes.plain(self._count, self._shape) if self._objects is None else self._objects
        for node in made:
            await self.create(node, NODE)
        assert self.service is not None
        self._running = group.create_task(self._live(self.service))
        self._stack.callback(self._end)
        await self.service.synced()

    def _end(self) -> None:
        self._running.cancel()

    def _new_service(self) -> ServiceLife:
        self.lives += 1
        self._last = ServiceLife(self._to_service, self._settings, self._world)
        self._last.line.late_by = self.watches_late_by
        return self._last

    async def _live(self, service: ServiceLife) -> None:
        await service.run()

    @property
    def application(self) -> Application:
        """That of the service, or of its last life while it is dead."""
        return self._last.application

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # -- the service dies ----------------------------------------------------------------------------------------

    def kill(self, *, losing: bool = True) -> None:
        """The service is dead, at once; whoever waits for it hears that. `losing`: what it has just sent is lost."""
        if self.service is not None:
            self.service.kill(losing=losing)
            self.service = None

    async def restart(self, after: float = 0.0) -> None:
        """The service is killed, and there again after so many seconds with what the cluster says, and nothing else."""
        self.kill()
        await asyncio.wait({self._running})
        await asyncio.sleep(after)
        self.service = self._new_service()
        self._running = self._group.create_task(self._live(self.service))
        await self.service.synced()

    def hold_watches(self, of: str = "") -> None:
        """The service hears nothing of what happens, until `release_watches` or its next life. `of`: as for a line."""
        if self.service is not None:
            self.service.line.hold_watches(of)

    def release_watches(self) -> None:
        if self.service is not None:
            self.service.line.release_watches()

    def forget_changes(self) -> None:
        """The API server remembers nothing of what has happened, and the service's watches end: it has to list."""
        self.cluster.api.store.compact(self.cluster.api.store.version)
        if self.service is not None:
            self.service.line.break_watches()

    def restore(self, backup: Backup, version: int | None = None) -> None:
        """etcd is restored from `cluster.api.store.back_up()` of an earlier time. `version`: as for `Store.restore`."""
        self.cluster.api.restore(backup, version)

    # -- what a user does ----------------------------------------------------------------------------------------

    async def create(self, body: Json, kind: Kind) -> Json:
        """The object, as the API server has it. Raises what a `Connection` does."""
        path = kind.path(body["metadata"].get("namespace", "default" if kind.namespaced else ""))
        return await self.ask("POST", path, body)

    async def ask(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Json:
        """One request to the API server."""
        sent = None if body is None else msgspec.json.encode(body)
        answer: Json = msgspec.json.decode(await self.requests.request(method, path, sent, content_type=content_type))
        return answer

    def connection_of_service(self) -> Connection:
        """By which the service asks the API server, in all of its lives."""
        return self._connection("network", SERVICE)

    def extender_client(self) -> ExtenderClient:
        """What the schedulers call; whoever wants to overhear them puts something between."""
        return CallableExtender(self._call)

    async def _call(self, verb: str, body: bytes) -> bytes:
        if self.service is None:
            raise ExtenderFailed("connection refused")
        try:
            return await self.service.call(verb, body)
        except NoAnswer as error:
            raise ExtenderFailed(str(error)) from error
