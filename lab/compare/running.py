"""Running: runs the trials of a plan on a cluster, one after the other, and returns outcomes.

The latency of a gang begins with its request, and ends when the watcher has seen its last member bound. The cluster is
empty before each trial. A trial that does not end is recorded as stuck, and what it left is removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from random import Random

from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from extender.kube.client.requests import Requests
from lab.compare.costs import Costs, Purse
from lab.compare.plan import Plan, SetUp, Trial
from lab.compare.reserved import Reserved, reserving
from lab.compare.service import Service, service_of
from lab.compare.trials import approaches, policies
from lab.compare.trials.approaches import SETTINGS, Ways
from lab.compare.trials.claims import claimable
from lab.compare.trials.disruptions import Losses
from lab.compare.trials.outside import Pod, Watched, watching
from lab.compare.trials.pods import AT_ONCE, a_few_at_a_time
from lab.compare.trials.pool import pool_for
from lab.compare.trials.room import Taking, leave, rooms, standing
from lab.compare.trials.waiting import gangs_waiting
from lab.compare.trials.workloads import Ask, Standing, Work
from lab.compare.vocabulary import BURST, CLAIMS, POLICIES, SINGLE
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.witness import Late

_SETTLE = 0.15
"""Seconds for the watches of schedulers and service to catch up; the same for every approach."""
_LEAVES, _LEAVES_EACH = 60.0, 0.05
"""Seconds until all objects of a trial are gone, and more for each requested pod."""
_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial that `began` at that time of the watcher's clock, without standing pods.

    `asks`: requests by name, with times. `seconds` until all had run, or it was given up. `reserved`: CPU-seconds."""

    trial: Trial
    done: bool
    began: float
    seconds: float
    asks: dict[str, tuple[Ask, float]]
    pods: dict[str, Pod]
    costs: Costs
    reserved: float | None = None


class Bench:
    def __init__(
        self,
        plan: Plan,
        requests: Requests,
        ways: dict[str, Ways],
        watched: Watched,
        purse: Purse,
        service: Service,
    ) -> None:
        self._plan, self._requests, self._ways, self._watched, self._purse = plan, requests, ways, watched, purse
        self._losses, self._service = Losses(requests, watched), service
        # If one approach needs other settings, the service restarts before each trial of every approach.
        self._anew = not SETTINGS.keys().isdisjoint(ways)

    async def once(self, trial: Trial) -> Outcome:
        """Leaves the cluster empty. Raises Late if that fails, Blind if the watcher has ended."""
        work = _named(self._plan.work(trial), f"{trial.approach}-{trial.number}")
        ways = self._ways[trial.approach]
        await self._service.have(SETTINGS.get(trial.approach, ""), anew=self._anew)
        self._watched.begin()
        async with standing(self._requests, work.standing):
            before = await self._spent(ways)
            for ask in work.asks:
                await ways.of(ask).prepare(ask)
            run = _Run(work, ways, self._watched, self._losses, partial(leave, self._requests))
            async with self._reserving(trial) as reserved:
                done = await run.to_its_end()
                seconds = time.monotonic() - run.began
            leaves = _LEAVES + _LEAVES_EACH * sum(ask.size for ask in work.asks)
            await _within(run.clear(), leaves, f"clearing away {trial}")
        self._watched.require()
        await self._watched.until(lambda: not self._watched.there, f"the end of {trial}", within=leaves)
        await asyncio.sleep(_SETTLE)
        spent = (await self._spent(ways)).since(before)
        held = None if reserved is None else reserved.cpu_seconds(seconds)
        stood = {each.name for each in work.standing}
        pods = {name: pod for name, pod in self._watched.pods.items() if name not in stood}
        return Outcome(trial, done, run.began, seconds, run.asked, pods, spent, held)

    def _reserving(self, trial: Trial) -> AbstractAsyncContextManager[Reserved | None]:
        """Samples nothing if gangs have room, because the sampling would affect the latency."""
        if trial.set_up.workload in (SINGLE, BURST):
            return nullcontext()
        return reserving(self._service, Random(trial.number))

    async def _spent(self, ways: Ways) -> Costs:
        rollbacks = None if ways.rollbacks is None else ways.rollbacks.count
        return replace(await self._purse.spent(), rollbacks=rollbacks)


async def _within(doing: Awaitable[None], seconds: float, what: str) -> None:
    """Raises Late if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            await doing
    except TimeoutError:
        raise Late(f"{what}: not within {seconds:g} s") from None


def _named(work: Work, prefix: str) -> Work:
    """The work with names that no other trial has."""
    return replace(
        work,
        asks=[replace(each, name=f"{prefix}-{each.name}") for each in work.asks],
        losses=[replace(each, gang=f"{prefix}-{each.gang}") for each in work.losses],
        standing=[replace(each, name=f"standing-{prefix}-{each.name}") for each in work.standing],
    )


@dataclass
class _Run:
    """The work of a trial, carried out once."""

    work: Work
    ways: Ways
    watched: Watched
    losses: Losses
    leave: Callable[[Standing], Awaitable[None]]
    began: float = 0.0
    asked: dict[str, tuple[Ask, float]] = field(default_factory=dict)
    _turns: asyncio.Semaphore | None = None
    _ends_by_itself: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)

    async def to_its_end(self) -> bool:
        """Whether all that was requested has been running."""
        if self.work.in_turns:
            # The semaphore serves its waiters in order, and they come in the order of their tasks.
            self._turns = asyncio.Semaphore(max(1, AT_ONCE // max(ask.size for ask in self.work.asks)))
        self.began = time.monotonic()
        try:
            async with asyncio.timeout(self.work.patience), asyncio.TaskGroup() as group:
                asks = [group.create_task(self._live(ask)) for ask in self.work.asks]
                asks += [
                    group.create_task(self.losses.suffer(loss, self._ask_of(loss.gang), self.ways.gangs))
                    for loss in self.work.losses
                ]
                others = [group.create_task(self._until_quiet())]
                others += [group.create_task(self._stand(each)) for each in self.work.standing]
                await asyncio.gather(*asks)
                for other in others:
                    other.cancel()
        except TimeoutError:
            return False
        except BaseExceptionGroup as several:
            if any(isinstance(each, Late) for each in several.exceptions):
                return False
            raise several.exceptions[0] from None
        return True

    async def clear(self) -> None:
        """Ends all gangs and pods that have not ended."""
        left = [ask for ask in self.work.asks if ask.name not in self._ended]
        if self.work.in_turns:
            await a_few_at_a_time(lambda ask: self.ways.of(ask).end(ask), left)
        else:
            await asyncio.gather(*(self.ways.of(ask).end(ask) for ask in left))

    def _ask_of(self, name: str) -> Ask:
        return next(ask for ask in self.work.asks if ask.name == name)

    async def _live(self, ask: Ask) -> None:
        await asyncio.sleep(self.began + ask.at - time.monotonic())
        way = self.ways.of(ask)
        async with self._turns or nullcontext():
            self.asked[ask.name] = (ask, time.monotonic())
            await way.submit(ask)
        await self.watched.until_running(ask.name, ask.size, within=self.work.patience)
        if ask.lasts is not None:
            self._ends_by_itself.add(ask.name)
            await asyncio.sleep(ask.lasts)
            await way.end(ask)
            self._ended.add(ask.name)
            self._ends_by_itself.discard(ask.name)

    async def _stand(self, pod: Standing) -> None:
        await asyncio.sleep(self.began + pod.until - time.monotonic())
        await self.leave(pod)

    async def _until_quiet(self) -> None:
        """Raises Late if nothing happens or is going to end, Blind if the watcher has ended."""
        while True:
            await asyncio.sleep(_LOOKS)
            self.watched.require()
            coming = len(self.asked) < len(self.work.asks)
            if not (coming or self._ends_by_itself) and time.monotonic() - self.watched.last > self.work.quiet:
                raise Late("nothing happens any more")


async def run(
    cluster: LocalCluster,
    plan: Plan,
    trials: Iterable[Trial],
    take: Callable[[Outcome], None],
    taking: Taking = lambda pods: None,
) -> None:
    """Calls `take` with each outcome, and `taking` when room is taken or freed for a set-up."""
    async with (
        _connected(cluster) as connection,
        service_of(cluster) as service,
        gangs_waiting(connection, plan.waiting),
        rooms(connection, taking) as room,
    ):
        for set_up, mine in groupby(trials, lambda trial: trial.set_up):
            await room.leave_free(set_up.shape.room, plan.cpu_of(set_up.workload))
            async with _bench(cluster, plan, set_up, connection, service) as bench:
                for trial in mine:
                    take(await bench.once(trial))


@asynccontextmanager
async def _connected(cluster: LocalCluster) -> AsyncIterator[Connection]:
    async with Connection(await Credentials.load(from_kubeconfig(cluster.kubeconfig))) as connection:
        warming = asyncio.create_task(connection.keep_warm(AT_ONCE))
        try:
            yield connection
        finally:
            warming.cancel()


@asynccontextmanager
async def _bench(
    cluster: LocalCluster, plan: Plan, set_up: SetUp, connection: Connection, service: Service
) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(pool_for(connection, set_up.shape))
        if set_up.workload == CLAIMS:
            await stack.enter_async_context(claimable(cluster.service_url, connection))
        purse = Purse(cluster, connection, service)
        stack.push_async_callback(purse.aclose)
        watched = await stack.enter_async_context(watching(cluster.kubeconfig))
        chosen = plan.approaches_of(set_up.workload)
        if set_up.workload in POLICIES:
            ways = await policies.ways(connection, cluster.service_url, set_up.workload, chosen, stack)
        else:
            ways = await approaches.ways(connection, chosen, stack, plan.seed)
        yield Bench(plan, connection, ways, watched, purse, service)
