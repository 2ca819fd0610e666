"""Gangs in pure extended resources, for applications: any kube-scheduler, no service.

    async with ExtendedResourceGangs(connection, namespace="team-a") as gangs:
        ask = gang("train", size=8, each={"cpu": "4"}, namespace="team-a", scheduler="default-scheduler")
        await gangs.run(ask, launch=create_pods)

The demo and the benchmark use it too. `launch` receives the `GangSpec` of this run and creates the members from it:
`spec.requirement(i, Approach.EXTENDED_RESOURCES).attach(pod)`. Permissions:
deploy/applications/gangs-without-extender.yaml.

The next instance in the namespace removes what a dead process left behind, at most 20 s after it has started. It first
removes the resources and every ghost without a member; other ghosts go with their members. `sweep` does not wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Self

import structlog

from extender.adapters.kubernetes.appspace.cluster_port import EslDriver
from extender.adapters.kubernetes.appspace.signal_exit import SignalExit
from extender.adapters.kubernetes.election.gang_leases import DURATION, RENEW_EVERY, GangLeases, Lost
from extender.app.contracts.ports import PodOwner
from extender.core.names import GangKey
from extender.esl.base import News, PodSeen, Report
from extender.esl.gangs.departed import (
    GHOST_LABEL,
    INSTANCE_LENGTH,
    RUN_LABEL,
    Leftover,
    instances,
    left_behind,
    run_token,
)
from extender.esl.gangs.gang_life import USUAL_TIMES, Times
from extender.esl.gangs.gang_run import GangFailed, GangRun
from extender.esl.gangs.gang_spec import GangSpec
from extender.esl.gangs.gang_turns import GangEsl, Space
from extender.kube.client.requests import Requests
from extender.kube.errors import Refused, Unavailable

__all__ = ["ExtendedResourceGangs", "GangFailed", "GangRun"]

_log = structlog.get_logger(__name__)
_TROUBLE = (News.ROLLED_BACK, News.INCOMPLETE, News.FAILED)


class ExtendedResourceGangs:
    """The gangs of one namespace. AppSpace: one object per application. LibSpace: one for all."""

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
        on_news: Callable[[Report], None] = lambda report: None,
    ) -> None:
        """`seed`: of jitter; None: random. `owner`: see `EslDriver`. `on_news` gets reports."""
        chosen = int.from_bytes(os.urandom(8), "big") if seed is None else seed
        self._esl = GangEsl(space, seed=chosen, times=times)
        self._driver = EslDriver(requests, self._esl, self._take, namespace=namespace, owner=owner)
        self._requests = requests
        self._namespace = namespace
        self._end_within = end_within
        self._on_news = on_news
        self._runs: dict[GangKey, GangRun] = {}
        self._started = 0
        self._instances: set[str] = set()
        self._inherited: set[tuple[GangKey, str]] = set()
        self._looked = asyncio.Event()
        """Set after each check of the other instances' Leases."""
        self._given_up: set[tuple[GangKey, str]] = set()
        """Runs of other instances whose leftovers could not all be removed."""
        self._signal = SignalExit()
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises Refused if the credentials allow too little."""
        self._signal.__enter__()
        try:
            await self._driver.__aenter__()
            self._begin_a_life()
            await self._live()
            self._beating = self._driver.spawn(self._beat())
        except BaseException:
            try:
                await self._driver.__aexit__()
            finally:
                self._signal.__exit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *details: object) -> None:
        """Cancels all gangs; what stays are the ghosts of running members."""
        try:
            for run in list(self._runs.values()):
                run.cancel()
            await self._until_settled([run.spec.gang for run in self._runs.values()], self._end_within)
        except TimeoutError:
            _log.error("gangs not ended; the next process ends them", gangs=[str(gang) for gang in self._runs])
        finally:
            if self._beating is not None:
                self._beating.cancel()
                await asyncio.gather(self._beating, return_exceptions=True)
            try:
                await self._die()
                await self._driver.__aexit__(*details)
            finally:
                self._signal.__exit__(None, None, None)

    async def _until_settled(self, gangs: Collection[GangKey], within: float) -> None:
        async with asyncio.timeout(within):
            while not all(self._esl.settled(gang) for gang in gangs):
                self._driver.changed.clear()
                await self._driver.changed.wait()

    # -- gangs ---------------------------------------------------------------------------------------------------

    def start(self, spec: GangSpec) -> GangRun:
        """Starts the gang. The caller creates its members from the `spec` of the returned run.

        Raises ValueError for a gang that has not ended or is of another namespace, and for a token whose run left
        something in the cluster. Raises InvalidName for a key that is too long.
        """
        if spec.gang.namespace != self._namespace:
            raise ValueError(f"gang {spec.gang} is not in namespace {self._namespace!r}, whose pods are watched here")
        if spec.run:
            self._require_fresh(spec)
        else:
            spec = spec.with_run(run_token(self._leases.instance, self._started))
            self._started += 1
        effects = self._esl.start(spec, self._driver.now())
        run = GangRun(spec, lambda: self._esl.phase(spec.gang), lambda: self._cancel(spec.gang))
        self._runs[spec.gang] = run
        self._driver.perform(effects)
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        for pod in self._driver.known_pods():
            # Members that already existed before the gang was started.
            if not keys.isdisjoint(pod.requests):
                self._driver.put(PodSeen(pod))
        return run

    def _require_fresh(self, spec: GangSpec) -> None:
        keys = {spec.key(bundle) for bundle in range(spec.size)}
        nodes = [node for node, has in self._driver.known_keys().items() if not keys.isdisjoint(has)]
        ghosts = [
            pod.name
            for pod in self._driver.known_pods()
            if pod.labels.get(GHOST_LABEL) == spec.gang.name and pod.labels.get(RUN_LABEL) == spec.run
        ]
        if nodes or ghosts:
            where = f"{len(ghosts)} ghosts and resources on {len(nodes)} nodes"
            raise ValueError(f"gang {spec.gang}: run {spec.run!r} was used before, and has left {where}; use another")

    async def run(self, spec: GangSpec, launch: Callable[[GangSpec], Awaitable[Any]] | None = None) -> Report:
        """Reserves, launches and awaits the gang. Raises GangFailed; cancellation cancels the gang.

        Once there is room, `launch` gets the run's `GangSpec` and creates the members. They may also exist earlier, if
        the caller gave the spec a token.
        """
        run = self.start(spec)
        try:
            await run.reserved()
            if launch is not None:
                await launch(run.spec)
            return await run.ended()
        except BaseException:
            run.cancel()
            raise

    async def sweep(self, spec: GangSpec) -> None:
        """Removes what earlier runs of this gang left, except the ghosts of members that still run.

        It does not wait for proof that their applications are dead, and skips this object's runs. Raises TimeoutError.
        """
        pods, keys = list(self._driver.known_pods()), self._driver.known_keys()
        everybody = instances(self._namespace, pods, keys) - self._instances
        found = [left for left in left_behind(self._namespace, pods, keys, everybody) if left.gang == spec.gang]
        self._inherit(found)
        async with asyncio.timeout(self._end_within):
            await self._until_left_to_members({left.run for left in found})

    async def collected(self) -> list[tuple[GangKey, str]]:
        """Waits until the leftovers of dead applications are gone, except running members' ghosts.

        Returns the gangs and the tokens of their runs. Raises TimeoutError.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(DURATION + 2 * RENEW_EVERY):
                await self._looked.wait()
                while self._leases.undecided:
                    self._looked.clear()
                    await self._looked.wait()
        async with asyncio.timeout(self._end_within):
            await self._until_left_to_members(self._esl.inherited)
        return sorted(self._inherited)

    async def _until_left_to_members(self, runs: Collection[str]) -> None:
        while not self._esl.unsettled.isdisjoint(runs):
            self._driver.changed.clear()
            await self._driver.changed.wait()

    def _cancel(self, gang: GangKey) -> None:
        self._driver.perform(self._esl.cancel(gang, self._driver.now()))

    def _take(self, report: Report) -> None:
        self._on_news(report)
        said = {"gang": str(report.subject), "run": report.run, "why": report.detail}
        run = self._runs.get(report.subject)
        if run is None or run.spec.run != report.run:
            _log.info("leftovers of an earlier run", news=report.news.value, **said)
            if report.news is News.FAILED:
                self._given_up.add((report.subject, report.run))
            return
        if report.news in _TROUBLE:
            _log.warning("a gang has a problem", news=report.news.value, **said)
        if report.news in (News.ENDED, News.FAILED):
            del self._runs[report.subject]
        run.take(report)

    # -- leases and leftovers ---------------------------------------------------------------------------------------

    def _begin_a_life(self) -> None:
        """Chooses a new instance name for everything that starts from now on."""
        instance = os.urandom(INSTANCE_LENGTH).hex()[:INSTANCE_LENGTH]
        self._leases = GangLeases(self._requests, self._namespace, instance, self._driver.now)
        self._instances.add(instance)
        self._driver.instance = instance

    async def _live(self) -> None:
        """Acquires the Lease by which other instances see that this one lives."""
        while True:
            try:
                return await self._leases.acquire()
            except Unavailable as error:
                _log.warning("no lease yet", why=str(error))
                await asyncio.sleep(1.0)

    async def _die(self) -> None:
        try:
            async with asyncio.timeout(self._end_within):
                await self._leases.release()
        except (Unavailable, Refused, TimeoutError) as error:
            _log.warning("the lease stays until it expires", why=str(error))

    async def _beat(self) -> None:
        """Renews the Lease and removes leftovers of dead instances until it is cancelled."""
        lost = False
        while True:
            try:
                if lost:
                    await self._live()
                    lost = False
                await self._collect()
                await asyncio.sleep(RENEW_EVERY)
                await self._leases.renew()
            except Lost as error:
                lost = True
                self._begin_a_life()
                why = f"other instances took it for dead: its lease was not renewed in time ({error})"
                for gang in list(self._runs):
                    self._driver.perform(self._esl.cancel(gang, self._driver.now(), why, News.FAILED))
            except (Unavailable, Refused) as error:
                _log.warning("the lease could not be renewed", why=str(error))
                self._leases.interrupted()
                await asyncio.sleep(1.0)

    async def _collect(self) -> None:
        """Starts the removal of what dead instances have left behind."""
        suspects = instances(self._namespace, self._driver.known_pods(), self._driver.known_keys())
        dead = await self._leases.dead(suspects) - self._instances
        self._looked.set()
        if not dead:
            return
        found = left_behind(self._namespace, list(self._driver.known_pods()), self._driver.known_keys(), dead)
        self._inherit([left for left in found if (left.gang, left.run) not in self._given_up])

    def _inherit(self, found: Collection[Leftover]) -> None:
        for left in found:
            self._inherited.add((left.gang, left.run))
            self._driver.perform(self._esl.inherit(left, self._driver.now()))
