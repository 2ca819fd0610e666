"""Gangs in pure extended resources, for applications, the demo and the benchmark: any kube-scheduler, no service.

    async with ExtendedResourceGangs(connection, namespace="team-a") as gangs:
        ask = gang("train", size=8, each={"cpu": "4"}, namespace="team-a")
        await gangs.run(ask, launch=create_pods)       # the pods with ask.requirement(i, Approach.EXTENDED_RESOURCES)

The credentials need: create, delete, get, list and watch pods in the namespace; patch nodes/status. What a process that
died left behind is removed with `sweep`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Self

import msgspec
import structlog

from extender.adapters.kube.cluster_port import GHOST_LABEL, EslDriver
from extender.adapters.kube.connection import METADATA_ONLY, Requests, address
from extender.adapters.kube.writers import ApiNodeStatusWriter
from extender.app.ports import Gone, PodOwner
from extender.core.names import GangKey, NodeName
from extender.esl.base import News, PodSeen, Report
from extender.esl.gang_life import USUAL_TIMES, Phase, Times
from extender.esl.gang_spec import GangSpec
from extender.esl.gang_turns import GangEsl, Space

_log = structlog.get_logger(__name__)


class GangFailed(Exception):
    """The gang has ended without having been reserved; `str()` says why."""


class GangRun:
    """One gang that was asked for."""

    def __init__(self, spec: GangSpec, phase: Callable[[], Phase], cancel: Callable[[], None]) -> None:
        self.spec = spec
        self.roll_backs: list[str] = []
        """Why, for each time that its ghosts were given up."""
        self.cancel = cancel
        """It ends as soon as its members have."""
        self._phase = phase
        self._reserved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[Report] = asyncio.get_running_loop().create_future()

    @property
    def phase(self) -> Phase:
        return self._phase()

    async def reserved(self) -> None:
        """All that it needs is held, and its resources are on the nodes. Raises GangFailed."""
        await asyncio.shield(self._reserved)

    async def ended(self) -> Report:
        """Nothing of it is left; the report says ENDED or FAILED, and why."""
        return await asyncio.shield(self._ended)

    def take(self, report: Report) -> None:
        if report.news is News.ROLLED_BACK:
            self.roll_backs.append(report.detail)
        elif report.news is News.RESERVED:
            self._reserved.set_result(None)
        else:
            self._ended.set_result(report)
            if not self._reserved.done():
                self._reserved.set_exception(GangFailed(f"gang {report.subject}: {report.detail}"))
                # It may be that nobody waits.
                self._reserved.exception()


class ExtendedResourceGangs:
    """Any number of gangs of one namespace. AppSpace: one of these per application; LibSpace: one for all."""

    def __init__(
        self,
        requests: Requests,
        *,
        namespace: str = "default",
        space: Space = Space.APP,
        times: Times = USUAL_TIMES,
        seed: int | None = None,
        owner: PodOwner | None = None,
        end_within: float = 10.0,
    ) -> None:
        """`seed` of the pauses' jitter and the ghosts' names; None: from the system. `owner`: see EslDriver."""
        chosen = int.from_bytes(os.urandom(8), "big") if seed is None else seed
        self._esl = GangEsl(space, seed=chosen, times=times)
        self._driver = EslDriver(requests, self._esl, self._take, namespace=namespace, owner=owner)
        self._requests = requests
        self._namespace = namespace
        self._end_within = end_within
        self._runs: dict[GangKey, GangRun] = {}

    async def __aenter__(self) -> Self:
        await self._driver.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        """Gangs whose members are not running leave nothing behind; the others keep the ghosts of those that are."""
        try:
            for run in list(self._runs.values()):
                run.cancel()
            waiting = [run.spec.gang for run in self._runs.values()]
            async with asyncio.timeout(self._end_within):
                while not all(self._esl.settled(gang) for gang in waiting):
                    self._driver.changed.clear()
                    await self._driver.changed.wait()
        except TimeoutError:
            _log.error("gangs could not be ended; `sweep` them", gangs=[str(gang) for gang in self._runs])
        finally:
            await self._driver.__aexit__(*details)

    def start(self, spec: GangSpec) -> GangRun:
        """The gang is wanted. Raises ValueError while one of that name has not ended, or for another namespace."""
        if spec.gang.namespace != self._namespace:
            raise ValueError(f"gang {spec.gang} is not in namespace {self._namespace!r}, whose pods are watched here")
        effects = self._esl.start(spec, self._driver.now())
        run = GangRun(spec, lambda: self._esl.phase(spec.gang), lambda: self._cancel(spec.gang))
        self._runs[spec.gang] = run
        self._driver.perform(effects)
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        for pod in self._driver.known_pods():
            # Members that were there before anybody asked.
            if not keys.isdisjoint(pod.requests):
                self._driver.tell(PodSeen(pod))
        return run

    async def run(self, spec: GangSpec, launch: Callable[[GangSpec], Awaitable[Any]] | None = None) -> Report:
        """The gang has been reserved, launched and has ended. Raises GangFailed; cancelled, it cancels the gang.

        `launch` creates the members once there is room. They may as well exist before.
        """
        run = self.start(spec)
        try:
            await run.reserved()
            if launch is not None:
                await launch(spec)
            return await run.ended()
        except BaseException:
            run.cancel()
            raise

    async def sweep(self, spec: GangSpec) -> None:
        """Nothing is left of an earlier gang of this ask. Only for one that nobody runs and that has no member left.

        Raises Unavailable, Refused.
        """
        pods = address("api", "v1", "namespaces", self._namespace, "pods")
        found = await self._requests.request("GET", f"{pods}?labelSelector={GHOST_LABEL}%3D{spec.gang.name}")
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        writer = ApiNodeStatusWriter(self._requests)
        # The resources first: see `extender.esl.gang_life`.
        nodes = _list.decode(await self._requests.request("GET", "/api/v1/nodes"))
        for node in nodes.items:
            stale = keys & ((node.status.capacity or {}).keys() | (node.status.allocatable or {}).keys())
            if stale:
                await writer.advertise(NodeName(node.metadata.name), {}, sorted(stale))
        for ghost in _list.decode(found).items:
            try:
                await self._requests.request(
                    "DELETE", f"{pods}/{ghost.metadata.name}", b'{"gracePeriodSeconds":0}', accept=METADATA_ONLY
                )
            except Gone:
                continue

    def _cancel(self, gang: GangKey) -> None:
        self._driver.perform(self._esl.cancel(gang, self._driver.now()))

    def _take(self, report: Report) -> None:
        run = self._runs[report.subject]
        if report.news in (News.ENDED, News.FAILED):
            del self._runs[report.subject]
        run.take(report)


class _Named(msgspec.Struct):
    name: str


class _Status(msgspec.Struct):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None


class _Item(msgspec.Struct):
    metadata: _Named
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item]


_list = msgspec.json.Decoder(_List)
