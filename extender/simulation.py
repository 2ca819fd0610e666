"""A whole cluster with the service in it, in one event loop and without a socket: simulation and tests.

    async with Simulation(seed=7, nodes=100) as simulation:
        await simulation.create(pod, POD)
        await asyncio.sleep(86_400)

On `sim.virtual_time` a day takes seconds, and the same seed gives the same day: API server, schedulers, kubelets,
controllers and Escher itself take their time from the loop and their chances from the seed. Requests and verbs are the
same bytes as over HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import msgspec

from extender.adapters.kube.connection import JSON
from extender.bootstrap import Application, World
from extender.controlplane import crds, nodes, schedulers
from extender.controlplane.nodes import NodeShape
from extender.settings import Settings
from extender.sim.apiserver.in_process import InProcess
from extender.sim.clock import Clock
from extender.sim.cluster import Cluster
from extender.sim.kinds import CUSTOM_RESOURCE_DEFINITION, NODE, Json, Kind
from extender.sim.scheduler.extender_client import CallableExtender, ExtenderFailed

NOWHERE = "http://escher.invalid"
"""Where the schedulers' configuration says that the extender is; nobody asks there."""

ADMIN, SERVICE = "admin", "escher"
"""As whom the user of a simulation asks the API server, and the service in it: the audit tells them apart."""


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
    ) -> None:
        self._seed = seed
        self._latency = latency
        self._settings = settings or Settings.model_validate({})
        self._objects = node_objects
        self._count, self._shape = nodes, node_shape or NodeShape()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.clock = Clock()
        self.cluster = Cluster(
            self.clock,
            seed=self._seed,
            scheduler_configs=[
                schedulers.extender_scheduler(kubeconfig=None, service_url=NOWHERE),
                schedulers.resources_scheduler(kubeconfig=None),
            ],
            extender=CallableExtender(self._call),
            latency=self._latency,
        )
        self.requests = self._connection("outside", ADMIN)
        drawn = self._drawn("service")
        world = World(self.clock, drawn.random, lambda: f"{drawn.getrandbits(64):016x}")
        self.application = Application(self._connection("network", SERVICE), self._settings, world)
        self._calls = self.application.asgi(self._settings).calls
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    def _drawn(self, part: str) -> random.Random:
        # One for each part, so that what one draws does not depend on how often another does.
        return random.Random(f"{self._seed} {part}")

    def _connection(self, part: str, user: str) -> InProcess:
        return InProcess(self.cluster.api, latency=self._latency, rng=self._drawn(part), user=user)

    async def _start(self) -> None:
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        running = [group.create_task(self.cluster.run())]
        self._stack.callback(lambda: [task.cancel() for task in running])
        for definition in crds.shipped_definitions():
            await self.create(definition, CUSTOM_RESOURCE_DEFINITION)
        made = nodes.plain(self._count, self._shape) if self._objects is None else self._objects
        for node in made:
            await self.create(node, NODE)
        running.append(group.create_task(self.application.run()))
        for reflector in self.application.reflectors:
            await reflector.synced.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.application.close()
        await self._stack.aclose()

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

    async def _call(self, verb: str, body: bytes) -> bytes:
        if not self.application.ready():
            raise ExtenderFailed("the service is not ready")
        answered = self._calls.by_name[verb](body)
        return answered if isinstance(answered, bytes) else await answered
