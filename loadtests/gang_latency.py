"""How long a gang takes, by approach, on one real control plane and in one run; as ratios to the same pods ungrouped.

    python -m loadtests.gang_latency --nodes 100 --sizes 8 64 --rounds 15
    python -m loadtests.gang_latency --nodes 100 --sizes 8 --waiting 8 --approaches ungrouped extender job job-gang

Every round runs every approach once, in an order drawn from the seed, and waits until the cluster is empty again.
Latency is taken from outside: from the start of the first create to the moment when this process's own watch shows
the last member bound. All approaches have the scheduler's default sampling and the same client. Machines are shared
and noisy: read the ratios, not the milliseconds.

    ungrouped       no gang, no extender (profile escher-resources): 1.00 by definition
    native          Kubernetes' own PodGroup (alpha), in the same scheduler as ungrouped; its PodGroup exists beforehand
    extender        profile escher: a gang by label, planned in the ledger, barrier at bind
    gated           the same, behind Escher's scheduling gate: a PATCH more for each member
    through         profile escher without a gang: what the two HTTP calls cost
    job             the pods of one Job, no gang, no extender: what the Job's controller costs
    job-gang        the pods of one Job as a gang; its ratio is to `job`

With --waiting so many gangs of two wait for room on nodes of their own all the while, so that each pod that goes is
news for them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Set
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop

from extender.controlplane.clusters import RealCluster
from extender.controlplane.witness import Changing, Collection, Late, Sighting, following, name_of
from extender.kube.connection import Connection
from extender.kube.credentials import Credentials, from_kubeconfig
from extender.kube.requests import address
from loadtests.pods import EXTENDER, PURE, Json, pod
from loadtests.progress import say
from loadtests.reading import node_of

NAMESPACE = "default"
_PODS = address("api", "v1", "namespaces", NAMESPACE, "pods")
_GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_OTHERS = "gang-latency-others"
_CREATORS = 16
_CPU = "500m"
_PATIENCE = 20.0
"""A gang that is not bound after so many seconds counts as stuck."""


def _ungrouped(name: str, gang: str, size: int) -> Json:
    return pod(name, PURE, cpu=_CPU)


def _through(name: str, gang: str, size: int) -> Json:
    return pod(name, EXTENDER, cpu=_CPU)


def _native(name: str, gang: str, size: int) -> Json:
    made = _ungrouped(name, gang, size)
    made["spec"]["schedulingGroup"] = {"podGroupName": gang}
    return made


def _extender(name: str, gang: str, size: int) -> Json:
    return pod(name, EXTENDER, gang=gang, quorum=size, cpu=_CPU)


def _gated(name: str, gang: str, size: int) -> Json:
    return pod(name, EXTENDER, gang=gang, quorum=size, gated=True, cpu=_CPU)


APPROACHES: dict[str, Callable[[str, str, int], Json]] = {
    "ungrouped": _ungrouped,
    "native": _native,
    "extender": _extender,
    "gated": _gated,
    "through": _through,
    "job": _ungrouped,
    "job-gang": _extender,
}
_BASE = {"job": "job", "job-gang": "job"}
"""What an approach is compared with, where that is not `ungrouped`."""


def _job(approach: str, gang: str, size: int) -> Json:
    made = APPROACHES[approach](gang, gang, size)
    template = {
        "metadata": {key: value for key, value in made["metadata"].items() if key in ("labels", "annotations")},
        "spec": made["spec"],
    }
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": gang}, "spec": spec}


def _waiting(number: int) -> list[Json]:
    """A pod on a node, and a gang of two of which only one has room there beside it."""
    there = {"kubernetes.io/hostname": f"node-{number}"}
    gang = {"gang": f"waits-{number}", "quorum": 2, "cpu": "3", "selector": there}
    members = [pod(f"waits-{number}-{member}", EXTENDER, **gang) for member in range(2)]
    return [pod(f"there-{number}", PURE, cpu="4", selector=there), *members]


class Outside(Changing):
    """Of all pods their names: which are bound since when, and which exist."""

    def __init__(self) -> None:
        super().__init__()
        self.bound_at: dict[str, float] = {}
        self.pods = Collection(_PODS, "Pod", self._see, read=_placed, identity=name_of, now=time.perf_counter)

    @property
    def existing(self) -> Set[str]:
        return self.pods.known.keys()

    def _see(self, sighting: Sighting[tuple[str, bool]]) -> None:
        name, is_bound = sighting.seen
        if is_bound and not sighting.gone:
            self.bound_at.setdefault(name, sighting.time)
        self.has_changed()

    async def until_seen(self, holds: Callable[[], bool], what: str) -> None:
        """Raises Late."""
        try:
            await self.until(holds, what, within=_PATIENCE)
        except Late:
            bound = len(self.existing & self.bound_at.keys())
            raise Late(f"{what}: {bound} of {len(self.existing)} bound after {_PATIENCE:g} s") from None


def _placed(found: Json) -> tuple[str, bool]:
    """Its name, and whether it is bound."""
    return name_of(found), bool(node_of(found))


class Bench:
    def __init__(self, connection: Connection, outside: Outside) -> None:
        self._connection = connection
        self._outside = outside
        self._made = 0

    async def _post(self, path: str, body: Json) -> None:
        await self._connection.request("POST", path, msgspec.json.encode(body))

    async def _create(self, bodies: Iterable[Json]) -> None:
        left = iter(bodies)

        async def create() -> None:
            for body in left:
                await self._post(_PODS, body)

        await asyncio.gather(*(create() for _ in range(_CREATORS)))

    async def let_others_wait(self, gangs: int) -> None:
        """In another namespace so many gangs wait for room from now on."""
        await self._post("/api/v1/namespaces", {"metadata": {"name": _OTHERS}})
        for number in range(gangs):
            for each in _waiting(number):
                await self._post(f"/api/v1/namespaces/{_OTHERS}/pods", each)
        await asyncio.sleep(2.0)  # they are tried, and turned away

    async def once(self, approach: str, size: int) -> float:
        """Milliseconds from the first create to the last member bound; infinite if stuck. Leaves the cluster empty."""
        self._made += 1
        gang = f"{approach}-{size}-{self._made}"
        if approach == "native":
            group = {"metadata": {"name": gang}, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}}}
            await self._post(_GROUPS, group)
        bound_at = self._outside.bound_at
        bound_at.clear()  # the cluster is empty
        made = [APPROACHES[approach](f"{gang}-{number}", gang, size) for number in range(size)]
        began = time.perf_counter()
        if approach in _BASE:
            await self._post(_JOBS, _job(approach, gang, size))
        else:
            await self._create(made)
        took = math.inf
        try:
            await self._outside.until_seen(lambda: len(bound_at) == size, gang)
            took = max(bound_at.values()) - began
        except Late as stuck:
            say(f"\n{stuck}\n")
        if approach in _BASE:
            await self._connection.request("DELETE", f"{_JOBS}/{gang}", b'{"propagationPolicy":"Background"}')
        await self._connection.request("DELETE", _PODS, b'{"gracePeriodSeconds":0}')
        await self._outside.until_seen(lambda: not self._outside.existing, "an empty cluster")
        if approach == "native":
            await self._connection.request("DELETE", f"{_GROUPS}/{gang}")
        await asyncio.sleep(0.15)  # the watches of schedulers and service catch up; the same for every approach
        return took * 1000


@asynccontextmanager
async def _connected(kubeconfig: Any) -> AsyncIterator[tuple[Connection, Outside]]:
    async with Connection(await Credentials.load(from_kubeconfig(kubeconfig))) as connection:
        outside = Outside()
        warming = asyncio.create_task(connection.keep_warm(_CREATORS))
        try:
            async with following(connection, outside.pods):
                yield connection, outside
        finally:
            warming.cancel()


async def measure(
    cluster: RealCluster, approaches: list[str], sizes: list[int], rounds: int, seed: int, waiting: int = 0
) -> dict[int, dict[str, list[float]]]:
    """Milliseconds by size and approach, a number a round."""
    order = random.Random(seed)
    async with _connected(cluster.kubeconfig) as (connection, outside):
        bench = Bench(connection, outside)
        if waiting:
            await bench.let_others_wait(waiting)
        results: dict[int, dict[str, list[float]]] = {}
        for size in sizes:
            results[size] = {approach: [] for approach in approaches}
            for number in range(-2, rounds):  # two to warm up
                for approach in order.sample(approaches, len(approaches)):
                    took = await bench.once(approach, size)
                    if number >= 0:
                        results[size][approach].append(took)
                say(f"gang of {size}: " + (f"round {number + 1} of {rounds}" if number >= 0 else "warming up"))
            say("\n")
        return results


def table(nodes: int, results: dict[int, dict[str, list[float]]]) -> str:
    """The medians and their ratios; the ratio's range is the middle half of the rounds' own ratios."""
    lines = []
    for size, by_approach in results.items():
        rounds = len(by_approach["ungrouped"])
        lines.append(f"{nodes} nodes, gang of {size}, {rounds} rounds, default sampling")
        for approach, times in by_approach.items():
            base = by_approach[_BASE.get(approach, "ungrouped")]
            ratio = statistics.median(times) / statistics.median(base)
            stuck = sum(map(math.isinf, times))
            each = sorted(mine / theirs for mine, theirs in zip(times, base, strict=True) if mine < math.inf) or [0.0]
            low, high = each[len(each) // 4], each[(3 * len(each)) // 4]
            lines.append(
                f"  {approach:<11}{statistics.median(times):8.1f} ms   {ratio:5.2f}   (rounds {low:.2f} to {high:.2f})"
                + (f"   {stuck} stuck" if stuck else "")
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtests.gang_latency", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, nargs="+", default=[100], help="nodes of each cluster, one by one")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 64], help="sizes of the gangs")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--approaches", nargs="+", default=list(APPROACHES), choices=list(APPROACHES))
    parser.add_argument("--waiting", type=int, default=0, metavar="GANGS", help="so many other gangs wait meanwhile")
    parser.add_argument("--config", help="the service's settings (YAML), as of `escher serve --config`")
    parser.add_argument("--json", action="store_true", help="raw data on standard output instead of tables")
    given = parser.parse_args()
    if "ungrouped" not in given.approaches:
        parser.error("--approaches must include ungrouped: everything is a ratio to it")
    if "job-gang" in given.approaches and "job" not in given.approaches:
        parser.error("--approaches must include job: job-gang is a ratio to it")
    if given.waiting > min(given.nodes):
        parser.error(f"--waiting {given.waiting}: each of those gangs waits on a node of its own")
    raw = {}
    for nodes in given.nodes:
        say(f"starting a control plane of {nodes} nodes")
        settings = ["--config", given.config] if given.config else []
        with RealCluster.start(nodes=nodes, native_gangs=True, service_arguments=settings) as cluster:
            measuring = measure(cluster, given.approaches, given.sizes, given.rounds, given.seed, given.waiting)
            results = uvloop.run(measuring)
        raw[nodes] = results
        if not given.json:
            sys.stdout.write(table(nodes, results) + "\n")
    if given.json:
        sys.stdout.write(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
