"""Simulation: a whole cluster with the service, in one event loop, without sockets.

    async with Simulation(seed=7, nodes=100) as simulation:
        await simulation.create(pod, POD)
        await asyncio.sleep(86_400)
        await simulation.restart()

On `sim.virtual_time` a day takes seconds, and the same seed gives the same day: API server, schedulers, kubelets,
controllers and Escher take their time from the loop and their chances from the seed. Requests and verbs are the same
bytes as over HTTP.
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
from extender.core.names import DOMAIN
from extender.kube.client.requests import JSON
from extender.kube.errors import Occupied
from extender.runtime import Runtime
from extender.settings.settings import Settings
from extender.shipped import crds
from kubesim.apiserver.machinery.store import Backup
from kubesim.apiserver.serving.in_process import InProcess
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
from lab.controlplane import marking, nodes, schedulers
from lab.controlplane.nodes import NodeShape
from lab.simulated_service import NoAnswer, ServiceLife, SteppedClock

NOWHERE = "http://escher.invalid"
"""The extender's address in the schedulers' configuration; no request goes there."""

ADMIN, SERVICE = "admin", "escher"
"""The users of a simulation and of its service at the API server; the audit distinguishes them."""


# The shipped files are read once, because many thousand clusters may use them.


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
    """`latency`: seconds per request. After entry, the service is ready and the nodes exist."""

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
        """`marks`: the API server marks pods that need Escher; if not, verbs run for all pods."""
        # `scheduler` changes the shipped KubeSchedulerConfiguration of the service's scheduler, `extender` its entries.
        self._seed = seed
        self._latency = latency
        self._settings = settings or Settings.model_validate({})
        self._objects = node_objects
        self._count, self._shape = nodes, node_shape or NodeShape()
        self._scheduler, self._extender, self._marks = scheduler or {}, extender or {}, marks
        self.watches_late_by = 0.0
        """Seconds of delay of the service's watches, from its next watch on."""
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
        """The service's time of day; `ahead` steps it."""
        self._world = Runtime(self.service_clock, drawn.random, lambda: f"{drawn.getrandbits(64):016x}", at_once=True)
        self._to_service = self.connection_of_service()
        self.lives = 0
        """The number of lives of the service."""
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
        # One generator per part, so that a part's draws do not depend on another's number of draws.
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
        """The service's application, or that of its last life while it is dead."""
        return self._last.application

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # -- the service dies ----------------------------------------------------------------------------------------

    def kill(self, *, losing: bool = True) -> None:
        """Kills the service; waiting callers get an error. `losing`: recent requests are lost."""
        if self.service is not None:
            self.service.kill(losing=losing)
            self.service = None

    async def restart(self, after: float = 0.0) -> None:
        """Kills the service; restarts it after `after` seconds with the cluster's state only."""
        self.kill()
        await asyncio.wait({self._running})
        await asyncio.sleep(after)
        self.service = self._new_service()
        self._running = self._group.create_task(self._live(self.service))
        await self.service.synced()

    def hold_watches(self, of: str = "") -> None:
        """Holds back its watches until `release_watches` or its next life. `of`: see `Line`."""
        if self.service is not None:
            self.service.line.hold_watches(of)

    def release_watches(self) -> None:
        if self.service is not None:
            self.service.line.release_watches()

    def forget_changes(self) -> None:
        """Compacts the API server's history and breaks the service's watches: it must list."""
        self.cluster.api.store.compact(self.cluster.api.store.version)
        if self.service is not None:
            self.service.line.break_watches()

    def restore(self, backup: Backup, version: int | None = None) -> None:
        """Restores etcd from a `cluster.api.store.back_up()`. `version`: see `Store.restore`."""
        self.cluster.api.restore(backup, version)

    # -- what a user does ----------------------------------------------------------------------------------------

    async def create(self, body: Json, kind: Kind) -> Json:
        """The object as the API server stored it. Raises as a `Connection`."""
        path = kind.path(body["metadata"].get("namespace", "default" if kind.namespaced else ""))
        return await self.ask("POST", path, body)

    async def ask(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Json:
        """Sends one request to the API server."""
        sent = None if body is None else msgspec.json.encode(body)
        answer: Json = msgspec.json.decode(await self.requests.request(method, path, sent, content_type=content_type))
        return answer

    def connection_of_service(self) -> Connection:
        """The service's connection to the API server, for all of its lives."""
        return self._connection("network", SERVICE)

    def extender_client(self) -> ExtenderClient:
        """The client that schedulers call; override it to intercept their calls."""
        return CallableExtender(self._call)

    async def _call(self, verb: str, body: bytes) -> bytes:
        if self.service is None:
            raise ExtenderFailed("connection refused")
        try:
            return await self.service.call(verb, body)
        except NoAnswer as error:
            raise ExtenderFailed(str(error)) from error
