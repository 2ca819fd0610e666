"""Measures the cost of ephemeral resources: for pods without any, with many, and near their data.

    python -m loadtests.goals.resource_costs                                   # a real control plane (Go); ten minutes
    python -m loadtests.goals.resource_costs --only locality
    python -m loadtests.goals.resource_costs --embedded --nodes 20 --rounds 2  # a look: its times are its own

Three comparisons on one control plane, each in rounds; every round has both sides, in a random order:

    many        a batch of pods that request none, with a thousand resources in the cluster, and with none
    asking      a batch of pods that request a hundred resources each, and a batch that requests one of these
    locality    tasks that must run at their data, by an ephemeral resource (extender), and by node affinity (without)

A batch's time is from its first creation until this process's watch shows its last pod bound. In `asking` every node
has a hundred resources, in `many` each of a thousand is on one node. Tasks of `locality` run in sequence, in places at
every node with data: the next is created when the one before has run for a second. Makespan is from the first creation
until the last task has run. A misplaced or unbound pod ends the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import uvloop

from escher_k8s import EscherError
from extender.core.names import DOMAIN, ephemeral_name
from extender.kube.client.requests import address
from extender.kube.errors import Refused, Unavailable
from lab.compare.costs import cpu_seconds
from lab.compare.reporting.figures import Sample, ratio
from lab.compare.trials.pods import a_few_at_a_time
from lab.compare.trials.polling import until
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from lab.controlplane.witness import Late
from loadtests.goals.measuring.measured import Measured, of_estimate
from loadtests.goals.measuring.rows import ASKING_FOR_MANY, LOCALITY, MANY_RESOURCES
from loadtests.native_policies.bench import connected
from loadtests.native_policies.site import NAMESPACE, PODS, Outside, RealSite
from loadtests.native_policies.work import BATCH, POD, node_term
from loadtests.shared.pods import EXTENDER, PURE, Json, pod
from loadtests.shared.progress import say

ELSEWHERE = f"{MANY_RESOURCES}, without the extender"
MANY_CPU, ASKING_CPU = f"{MANY_RESOURCES}, CPU", f"{ASKING_FOR_MANY}, CPU"
EACH_LOCAL = f"{LOCALITY}, each pod until bound"
MANY, ASKING, NEAR = "many", "asking", "locality"
COMPARISONS = (MANY, ASKING, NEAR)

_PATIENCE = 60.0
_SETTLES = 1.0
"""Seconds until watches of schedulers and service have seen the last write."""
_EVERY, _WRITTEN_WITHIN = 0.1, 120.0
_NODES = address("api", "v1", "nodes")
_LABEL = "locality.test/"
_ENOUGH = 1000
"""Units of a resource that must not be scarce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`pods` of a batch; `resources` that no pod requests; `asked` for by each pod.

    `data`: nodes with data, with `places` each; a place runs `tasks` in sequence, for `lasts` seconds each.
    """

    nodes: int = 100
    pods: int = 64
    resources: int = 1000
    asked: int = 100
    data: int = 10
    places: int = 4
    tasks: int = 5
    lasts: float = 1.0
    rounds: int = 12


@dataclass
class Took:
    """Seconds by side and round; `cpu`: of all processes of the cluster together."""

    passed: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    cpu: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, side: str, number: int, passed: Iterable[float], cpu: float | None = None) -> None:
        """Adds a round's values; a round below 0 is a warm-up and does not count."""
        if number >= 0:
            self.passed.setdefault(side, {})[number] = list(passed)
            if cpu is not None:
                self.cpu.setdefault(side, {})[number] = [cpu]


def _told(row: str, ours: Sample, theirs: Sample) -> Iterator[Measured]:
    if (found := ratio(ours, theirs)) is not None:
        yield of_estimate(row, found)


# -- the bench -------------------------------------------------------------------------------------------------------


class Bench:
    """Runs batches on one cluster. `spent`: CPU seconds of all its processes so far."""

    def __init__(self, site: RealSite, outside: Outside, spent: Callable[[], float], sizes: Sizes, seed: int) -> None:
        self._site, self._outside, self._spent, self._sizes = site, outside, spent, sizes
        self._random = Random(seed)
        self._made = 0

    def _sides(self, *sides: str) -> Iterator[tuple[int, str]]:
        """Yields both sides of every round in a random order, after a round to warm up."""
        for number in range(-1, self._sizes.rounds):
            for side in self._random.sample(sides, len(sides)):
                yield number, side

    def _pod(self, scheduler: str, **asks: Any) -> Json:
        self._made += 1
        name = f"cost-{self._made}"
        made = pod(name, scheduler, **{"cpu": "100m", **asks})
        made["metadata"]["labels"] |= {POD: name, BATCH: "1"}
        return made

    async def _create(self, made: Json) -> None:
        await self._site.make(PODS, made)

    async def _batch(self, scheduler: str, **asks: Any) -> tuple[float, float]:
        """Returns seconds until all were bound, and CPU until they were gone. Raises Late."""
        self._outside.forget()
        pods = [self._pod(scheduler, **asks) for _ in range(self._sizes.pods)]
        bound, before = self._outside.bound_at, self._spent()
        began = time.perf_counter()
        try:
            await a_few_at_a_time(self._create, pods)
            await self._outside.until_seen(lambda: len(bound) == len(pods), "a batch", within=_PATIENCE)
            took = max(bound.values()) - began
        finally:
            await self._site.end_batch()
            await asyncio.sleep(_SETTLES)
        return took, self._spent() - before

    # -- resources that no pod requests

    async def many(self) -> Iterator[Measured]:
        found = Took()
        names = [f"cost-{number}" for number in range(self._sizes.resources)]
        places = {name: f"node-{number % self._sizes.nodes}" for number, name in enumerate(names)}
        try:
            for number, side in self._sides("there", "none"):
                await self._have(places if side == "there" else {})
                for scheduler in self._random.sample((EXTENDER, PURE), 2):
                    took, cpu = await self._batch(scheduler)
                    found.add(f"{side} {scheduler}", number, [took], cpu)
                say(f"{MANY}: round {number + 1} of {self._sizes.rounds}, {side}")
        finally:
            await self._have({})
        there, none = f"there {EXTENDER}", f"none {EXTENDER}"
        return iter(
            [
                *_told(MANY_RESOURCES, found.passed[there], found.passed[none]),
                *_told(MANY_CPU, found.cpu[there], found.cpu[none]),
                *_told(ELSEWHERE, found.passed[f"there {PURE}"], found.passed[f"none {PURE}"]),
            ]
        )

    async def _have(self, wanted: Mapping[str, str]) -> None:
        """Makes these the only resources, a unit each, also in node status. Raises Late."""
        there = await self._stated()
        if there == (len(wanted), len(wanted)):
            return
        if wanted:
            await a_few_at_a_time(lambda name: self._site.set_resource(name, 1, wanted[name]), list(wanted))
        else:
            names = [f"cost-{number}" for number in range(self._sizes.resources)]
            await a_few_at_a_time(self._site.drop_resource, names)
        await self._until_stated(len(wanted), len(wanted))

    async def _stated(self) -> tuple[int, int]:
        listed = msgspec.json.decode(await self._site.connection.request("GET", _NODES))["items"]
        keys = [key for each in listed for key in each["status"]["allocatable"] if key.startswith(f"{DOMAIN}/")]
        return len(set(keys)), len(keys)

    async def _until_stated(self, names: int, keys: int) -> None:
        async def stated() -> bool:
            return await self._stated() == (names, keys)

        what = f"{names} ephemeral resources in the status of nodes"
        await until(stated, lambda: what, within=_WRITTEN_WITHIN, every=_EVERY)
        await asyncio.sleep(_SETTLES)

    # -- resources that every pod requests

    async def asking(self) -> Iterator[Measured]:
        sizes, found = self._sizes, Took()
        names = [f"cost-{number}" for number in range(sizes.asked)]
        asks = {str(ephemeral_name(NAMESPACE, name).key()): 1 for name in names}
        first = dict(list(asks.items())[:1])
        try:
            await a_few_at_a_time(lambda name: self._site.set_resource(name, _ENOUGH, {}), names)
            await self._until_stated(sizes.asked, sizes.asked * sizes.nodes)
            for number, side in self._sides("all", "one"):
                took, cpu = await self._batch(EXTENDER, **(asks if side == "all" else first))
                found.add(side, number, [took], cpu)
                say(f"{ASKING}: round {number + 1} of {sizes.rounds}, {side}")
        finally:
            await a_few_at_a_time(self._site.drop_resource, names)
            await self._until_stated(0, 0)
        return iter(
            [
                *_told(ASKING_FOR_MANY, found.passed["all"], found.passed["one"]),
                *_told(ASKING_CPU, found.cpu["all"], found.cpu["one"]),
            ]
        )

    # -- data locality

    async def locality(self) -> Iterator[Measured]:
        sizes, whole, each = self._sizes, Took(), Took()
        holders = {f"cost-data-{number}": f"node-{sizes.nodes // 2 + number}" for number in range(sizes.data)}
        ways = {"ours": self._by_resource, "native": self._by_affinity}
        try:
            for data, node in holders.items():
                await self._site.set_resource(data, _ENOUGH, node)
                await self._site.label([node], _LABEL + data, "")
            await self._until_stated(sizes.data, sizes.data)
            for number, side in self._sides(*ways):
                makespan, latencies = await self._tasks(holders, ways[side])
                whole.add(side, number, [makespan])
                each.add(side, number, latencies)
                say(f"{NEAR}: round {number + 1} of {sizes.rounds}, {side}")
        finally:
            await a_few_at_a_time(self._site.drop_resource, list(holders))
            for data, node in holders.items():
                await self._site.label([node], _LABEL + data, None)
            await self._until_stated(0, 0)
        return iter(
            [
                *_told(LOCALITY, whole.passed["ours"], whole.passed["native"]),
                *_told(EACH_LOCAL, each.passed["ours"], each.passed["native"]),
            ]
        )

    def _by_resource(self, data: str) -> Json:
        return self._pod(EXTENDER, **{str(ephemeral_name(NAMESPACE, data).key()): 1})

    def _by_affinity(self, data: str) -> Json:
        made = self._pod(PURE)
        terms = {"nodeSelectorTerms": [node_term(_LABEL + data)]}
        made["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return made

    async def _tasks(self, holders: Mapping[str, str], way: Callable[[str], Json]) -> tuple[float, list[float]]:
        """Returns makespan and latencies, in seconds. Leaves no pod. Raises Late, RuntimeError."""
        self._outside.forget()
        latencies: list[float] = []

        async def one_after_the_other(data: str) -> None:
            for _ in range(self._sizes.tasks):
                made = way(data)
                name, asked = made["metadata"]["name"], time.perf_counter()
                await self._create(made)
                await self._outside.until_seen(
                    lambda name=name: name in self._outside.bound_at,  # type: ignore[misc]
                    name,
                    within=_PATIENCE,
                )
                if self._outside.nodes[name] != holders[data]:
                    raise RuntimeError(f"{name} is on {self._outside.nodes[name]}, its data on {holders[data]}")
                bound = self._outside.bound_at[name]
                latencies.append(bound - asked)
                await asyncio.sleep(bound + self._sizes.lasts - time.perf_counter())
                await self._site.empty(name)

        began = time.perf_counter()
        places = [asyncio.create_task(one_after_the_other(data)) for data in holders for _ in range(self._sizes.places)]
        try:
            await asyncio.gather(*places)
            return max(self._outside.bound_at.values()) + self._sizes.lasts - began, latencies
        finally:
            for place in places:
                place.cancel()
            await asyncio.gather(*places, return_exceptions=True)
            await self._site.end_batch()
            await asyncio.sleep(_SETTLES)


# -- the command -----------------------------------------------------------------------------------------------------


def measures(
    sizes: Sizes = Sizes(), *, seed: int = 1, embedded: bool = False, only: Sequence[str] = COMPARISONS
) -> Iterator[Measured]:
    """Measures on a new cluster. Raises ClusterError, and RuntimeError if a step failed."""
    kind = EmbeddedCluster if embedded else RealCluster
    say(f"starting a control plane of {sizes.nodes} nodes")
    with kind.start(nodes=sizes.nodes) as cluster:
        yield from uvloop.run(measure(cluster, sizes, seed, only))


async def measure(cluster: LocalCluster, sizes: Sizes, seed: int, only: Sequence[str]) -> list[Measured]:
    """Leaves the cluster as it was. Raises RuntimeError if a step failed."""

    def spent() -> float:
        return sum(cpu_seconds(pid) for pid in cluster.pids().values())

    async with connected(cluster.kubeconfig, cluster.service_url) as (site, outside):
        bench = Bench(site, outside, spent, sizes, seed)
        comparisons = {MANY: bench.many, ASKING: bench.asking, NEAR: bench.locality}
        # An exception raised inside the block would leave it as a group.
        try:
            return [each for name in COMPARISONS if name in only for each in await comparisons[name]()]
        except (EscherError, Late, Refused, RuntimeError, Unavailable) as error:
            failed = error
    raise RuntimeError(str(failed)) from failed


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.resource_costs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    usual = Sizes()
    parser.add_argument("--nodes", type=int, default=usual.nodes, help=f"of the cluster (default: {usual.nodes})")
    parser.add_argument("--pods", type=int, default=usual.pods, help=f"of a batch (default: {usual.pods})")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help=f"(default: {usual.rounds})")
    parser.add_argument("--seed", type=int, default=1, help="draws the order of sides (default: 1)")
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=COMPARISONS, help="(default: all)")
    parser.add_argument("--embedded", action="store_true", help="on the embedded cluster: a look, no Go")
    wanted = parser.parse_args(given)
    if wanted.nodes < (least := 2 * usual.data):
        parser.error(f"--nodes should be {least} or more, found {wanted.nodes}")
    sizes = Sizes(nodes=wanted.nodes, pods=wanted.pods, rounds=wanted.rounds)
    for each in measures(sizes, seed=wanted.seed, embedded=wanted.embedded, only=wanted.only):
        sys.stdout.write(f"{each.row:<52}{each.now:8.3f}   ({each.low:.3f} to {each.high:.3f})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
