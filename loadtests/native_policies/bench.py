"""Bench: runs batches of one work's pods, all ways in turns, and measures them from outside.

A pod's time is from the start of its creation (in an application: before it asks its ESL) until this process's own
watch shows it bound. If something must happen first, the time starts there. A batch ends when the expected number is
bound, or after `PATIENCE`; then its pods are deleted, and all that it created.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from escher_k8s import AsyncEscher
from escher_k8s.esl import PolicyEsl, Soft
from extender.adapters.kubernetes.appspace.extended_resource_policies import Policies
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from extender.kube.errors import Refused
from lab.controlplane.witness import Late, following
from loadtests.native_policies.report import Batch, Results
from loadtests.native_policies.site import NAMESPACE, PODS, Outside, RealSite
from loadtests.native_policies.work import WAYS, Way, Work
from loadtests.shared.progress import say

PATIENCE = 10.0
"""Seconds after which a batch that is not bound is given up."""
_CREATORS = 16
_BACK_OFF_IS_OVER = 3.0
"""Seconds until refused pods' `podMaxBackoffSeconds: 1` (rounded by kube-scheduler) is over."""
_CATCH_UP = 0.2
_OVER_QUOTA = 403


class Bench:
    def __init__(self, site: RealSite, outside: Outside) -> None:
        self._site, self._outside = site, outside
        self._made = 0

    async def once(self, work: Work, way: Way) -> Batch:
        """Runs one batch: its pods are bound and deleted. Leaves the cluster as it was."""
        self._made += 1
        await work.before(self._site, way)
        self._outside.forget()
        async with AsyncExitStack() as block:
            space = policy = None
            if way == "esl":
                policies = work.policies()
                space = await block.enter_async_context(Policies(self._site.connection, policies, namespace=NAMESPACE))
                policy = policies[-1]
                await work.entrust(space, policies)
            try:
                return await self._measured(work, way, space, policy)
            finally:
                await self._site.end_batch()
                await work.after(self._site, way)
                await asyncio.sleep(_CATCH_UP)  # watches of schedulers and service; the same for every way

    async def _measured(self, work: Work, way: Way, space: Policies | None, policy: PolicyEsl | None) -> Batch:
        names = [f"{work.name}-{way}-{self._made}-{number}" for number in range(work.size)]
        began: dict[str, float] = {}
        left = iter(enumerate(names))
        refused = 0

        async def create() -> None:
            nonlocal refused
            for number, name in left:
                began[name] = time.perf_counter()
                made = work.pod(way, name, number)
                if space is not None and policy is not None:
                    requirement = await space.ask(policy, work.task(name, number), made)
                    if isinstance(policy, Soft):
                        continue
                    made = requirement.attach(made)
                try:
                    await self._site.connection.request("POST", PODS, msgspec.json.encode(made))
                except Refused as error:
                    if error.status != _OVER_QUOTA:
                        raise
                    refused += 1

        first = time.perf_counter()
        bound = self._outside.bound_at
        happening = asyncio.ensure_future(self._happen(work, way, names, space, policy)) if work.happens else None
        try:
            await asyncio.gather(*(create() for _ in range(_CREATORS)))
            if work.happens == 0:
                first = await self._happen(work, way, names, space, policy)
                began = dict.fromkeys(names, first)
            await self._outside.until_seen(lambda: len(bound) >= work.expected, work.name, within=PATIENCE)
            await asyncio.sleep(work.watched)
        except Late as late:
            say(f"{work.name}, {way}: {late}: {len(bound)} of {work.expected} bound\n")
        finally:
            if happening is not None:
                happening.cancel()
                [ended] = await asyncio.gather(happening, return_exceptions=True)
                if isinstance(ended, Exception):
                    raise ended
        numbers = {name: number for number, name in enumerate(names)}
        placed = {numbers[name]: self._outside.nodes[name] for name in bound}
        verdict = work.judge(placed, work.size - refused - len(placed))
        took = [at - began[name] for name, at in bound.items()]
        whole = max(bound.values()) - first if len(bound) >= work.expected else None
        return Batch.of(verdict, refused, took, whole)

    async def _happen(
        self, work: Work, way: Way, names: Sequence[str], space: Policies | None, policy: PolicyEsl | None
    ) -> float:
        """Starts what the work waits for, and returns the time of the start."""
        if work.happens:
            await asyncio.sleep(work.happens)
        else:
            tried = self._outside.tried
            await self._outside.until_seen(lambda: len(tried) == len(names), "all tried", within=PATIENCE)
            await asyncio.sleep(_BACK_OFF_IS_OVER)
        at = time.perf_counter()
        await work.happen(self._site, way, space, policy)
        return at


@asynccontextmanager
async def connected(kubeconfig: Path, service_url: str) -> AsyncIterator[tuple[RealSite, Outside]]:
    async with (
        Connection(await Credentials.load(from_kubeconfig(kubeconfig))) as connection,
        AsyncEscher(service_url, namespace=NAMESPACE) as escher,
    ):
        outside = Outside()
        warming = asyncio.create_task(connection.keep_warm(_CREATORS))
        try:
            async with following(connection, outside.pods):
                yield RealSite(connection, escher, outside), outside
        finally:
            warming.cancel()


async def measure(
    kubeconfig: Path,
    service_url: str,
    works: Sequence[Work],
    rounds: int,
    seed: int,
    tell: Callable[[str], None] = say,
) -> Results:
    """Returns each way's batches of each work, one a round, after one of each to warm up."""
    order = random.Random(seed)
    results: Results = {}
    async with connected(kubeconfig, service_url) as (site, outside):
        bench = Bench(site, outside)
        for at, work in enumerate(works, 1):
            ways = [way for way in WAYS if way in work.said]
            results[work.name] = {way: [] for way in ways}
            await work.lay(site)
            try:
                for number in range(rounds + 1):
                    told = f"round {number} of {rounds}" if number else "warming up"
                    tell(f"{work.name} ({at} of {len(works)}): {told}")
                    for way in order.sample(ways, len(ways)):
                        batch = await bench.once(work, way)
                        if number:
                            results[work.name][way].append(batch)
            finally:
                await work.clear(site)
    return results
