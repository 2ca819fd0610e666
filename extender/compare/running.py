"""Running: the trials of a plan on a cluster, one after the other, and what was seen of each.

The latency of a gang begins when it is asked for, and ends when the watcher has seen its last member bound. The cluster
is empty before each trial. One that does not end in time is written down as stuck, and what it left is removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from extender.compare import approaches
from extender.compare.approaches import Ask, Way
from extender.compare.costs import Costs, Purse
from extender.compare.outside import Pod, Watched, watching
from extender.compare.plan import Plan, Trial
from extender.controlplane.clusters import LocalCluster
from extender.controlplane.witness import Late
from extender.kube.connection import Connection
from extender.kube.credentials import Credentials, from_kubeconfig

_PATIENCE, _PATIENCE_PER_MEMBER = 20.0, 0.5
"""Seconds after which a gang counts as stuck."""
_SETTLE = 0.15
"""The watches of schedulers and service catch up; the same for every approach."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen of a trial. `asked`: when, by the watcher's clock; `seconds` until its pods were running, or it was
    given up."""

    trial: Trial
    done: bool
    asked: float
    seconds: float
    pods: dict[str, Pod]
    costs: Costs


class Bench:
    def __init__(self, ways: dict[str, Way], watched: Watched, purse: Purse, cpu: str) -> None:
        self._ways, self._watched, self._purse, self._cpu = ways, watched, purse, cpu

    async def once(self, trial: Trial) -> Outcome:
        """Leaves the cluster empty. Raises Late where that is not possible."""
        way = self._ways[trial.approach]
        ask = Ask(f"{trial.approach}-{trial.number}", trial.size, self._cpu)
        patience = _PATIENCE + _PATIENCE_PER_MEMBER * trial.size
        self._watched.begin()
        before = await self._purse.spent()
        await way.prepare(ask)
        asked = time.monotonic()
        await way.submit(ask)
        try:
            await self._watched.until(lambda: self._watched.placed(ask.name)[1] == ask.size, ask.name, within=patience)
            done = True
        except Late:
            done = False
        seconds = time.monotonic() - asked
        await way.end(ask)
        await self._watched.until(lambda: not self._watched.there, f"the end of {ask.name}", within=patience)
        await asyncio.sleep(_SETTLE)
        spent = (await self._purse.spent()).since(before)
        return Outcome(trial, done, asked, seconds, self._watched.pods, spent)


@asynccontextmanager
async def bench(cluster: LocalCluster, plan: Plan) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        credentials = await Credentials.load(from_kubeconfig(cluster.kubeconfig))
        connection = await stack.enter_async_context(Connection(credentials))
        warming = asyncio.create_task(connection.keep_warm(approaches.AT_ONCE))
        stack.callback(warming.cancel)
        purse = Purse(cluster, connection)
        stack.push_async_callback(purse.aclose)
        watched = await stack.enter_async_context(watching(cluster.kubeconfig))
        ways = await approaches.ways(connection, list(plan.approaches), stack, plan.seed)
        yield Bench(ways, watched, purse, plan.cpu)


async def run(cluster: LocalCluster, plan: Plan, trials: Iterable[Trial], take: Callable[[Outcome], None]) -> None:
    """`take` is told of each trial as it ends."""
    async with bench(cluster, plan) as made:
        for trial in trials:
            take(await made.once(trial))
