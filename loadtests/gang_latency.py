"""How long a gang takes, by approach, on one real control plane and in one run; as ratios to the same pods ungrouped.

    python -m loadtests.gang_latency --nodes 100 --sizes 8 64 --rounds 15

Every round runs every approach once, in an order drawn from the seed, and waits until the cluster is empty again.
Latency is taken from outside: from the start of the first create to the moment when this process's own watch shows
the last member bound. All approaches have the scheduler's default sampling and the same client. Machines are shared
and noisy: read the ratios, not the milliseconds.

    ungrouped       no gang, no extender (profile escher-resources): 1.00 by definition
    native          Kubernetes' own PodGroup (alpha), in the same scheduler as ungrouped; its PodGroup exists beforehand
    extender        profile escher: a gang by label, planned in the ledger, barrier at bind
    gated           the same, behind Escher's scheduling gate: a PATCH more for each member
    through         profile escher without a gang: what the two HTTP calls cost
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
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import uvloop

from extender.adapters.kube.connection import Connection, address
from extender.adapters.kube.credentials import Credentials, from_kubeconfig
from extender.controlplane.cluster import RealCluster
from extender.core.gang_ask import GANG_GATE, GANG_LABEL, MIN_MEMBER
from loadtests.progress import say

NAMESPACE = "default"
_PODS_PATH = ("api", "v1", "namespaces", NAMESPACE, "pods")
_PODS = address(*_PODS_PATH)
_GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
_CREATORS = 16
_PATIENCE = 20.0
"""A gang that is not bound after so many seconds counts as stuck."""

Manifest = dict[str, Any]


class _Metadata(msgspec.Struct):
    name: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")


class _Spec(msgspec.Struct):
    node: str | None = msgspec.field(name="nodeName", default=None)


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Object


_events = msgspec.json.Decoder(_Event)


def _pod(name: str, scheduler: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m"}}}],
        },
    }


def _ungrouped(name: str, gang: str, size: int) -> Manifest:
    return _pod(name, "escher-resources")


def _through(name: str, gang: str, size: int) -> Manifest:
    return _pod(name, "escher")


def _native(name: str, gang: str, size: int) -> Manifest:
    pod = _pod(name, "escher-resources")
    pod["spec"]["schedulingGroup"] = {"podGroupName": gang}
    return pod


def _extender(name: str, gang: str, size: int) -> Manifest:
    pod = _pod(name, "escher")
    pod["metadata"] |= {"labels": {GANG_LABEL: gang}, "annotations": {MIN_MEMBER: str(size)}}
    return pod


def _gated(name: str, gang: str, size: int) -> Manifest:
    pod = _extender(name, gang, size)
    pod["spec"]["schedulingGates"] = [{"name": GANG_GATE}]
    return pod


APPROACHES: dict[str, Callable[[str, str, int], Manifest]] = {
    "ungrouped": _ungrouped,
    "native": _native,
    "extender": _extender,
    "gated": _gated,
    "through": _through,
}


class Outside:
    """A watch on pods that knows nothing but names: which are bound since when, and which exist."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.bound_at: dict[str, float] = {}
        self.existing: set[str] = set()
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        version = ""
        while True:  # the API server ends watches, those of slow readers above all
            query = {"watch": "true", "resourceVersion": version}
            async with aclosing(self._connection.lines(address(*_PODS_PATH, query=query), silence=3600.0)) as lines:
                async for line in lines:
                    event = _events.decode(line)
                    version = event.object.metadata.version or version
                    self._see(event.type, event.object)
                    self._changed.set()

    def _see(self, kind: str, pod: _Object) -> None:
        name = pod.metadata.name
        if kind == "DELETED":
            self.existing.discard(name)
            return
        self.existing.add(name)
        if pod.spec.node and name not in self.bound_at:
            self.bound_at[name] = time.perf_counter()

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            bound = len(self.existing & self.bound_at.keys())
            raise TimeoutError(f"{what}: {bound} of {len(self.existing)} bound after {_PATIENCE:g} s") from None


class Bench:
    def __init__(self, connection: Connection, outside: Outside) -> None:
        self._connection = connection
        self._outside = outside
        self._made = 0

    async def _post(self, path: str, body: Manifest) -> None:
        await self._connection.request("POST", path, msgspec.json.encode(body))

    async def once(self, approach: str, size: int) -> float:
        """Milliseconds from the first create to the last member bound; infinite if stuck. Leaves the cluster empty."""
        self._made += 1
        gang = f"{approach}-{size}-{self._made}"
        if approach == "native":
            group = {"metadata": {"name": gang}, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}}}
            await self._post(_GROUPS, group)
        names = [f"{gang}-{number}" for number in range(size)]
        bodies = iter([APPROACHES[approach](name, gang, size) for name in names])

        async def create() -> None:
            for body in bodies:
                await self._post(_PODS, body)

        began = time.perf_counter()
        await asyncio.gather(*(create() for _ in range(min(_CREATORS, size))))
        bound_at = self._outside.bound_at
        took = math.inf
        try:
            await self._outside.until(lambda: all(name in bound_at for name in names), gang)
            took = max(bound_at[name] for name in names) - began
        except TimeoutError as stuck:
            say(f"\n{stuck}\n")
        await self._connection.request("DELETE", _PODS, b'{"gracePeriodSeconds":0}')
        await self._outside.until(lambda: not self._outside.existing, "an empty cluster")
        if approach == "native":
            await self._connection.request("DELETE", f"{_GROUPS}/{gang}")
        await asyncio.sleep(0.15)  # the watches of schedulers and service catch up; the same for every approach
        return took * 1000


@asynccontextmanager
async def _connected(kubeconfig: Any) -> AsyncIterator[tuple[Connection, Outside]]:
    async with Connection(await Credentials.load(from_kubeconfig(kubeconfig))) as connection:
        outside = Outside(connection)
        following = asyncio.create_task(outside.follow())
        warming = asyncio.create_task(connection.keep_warm(_CREATORS))
        try:
            yield connection, outside
        finally:
            following.cancel()
            warming.cancel()


async def measure(
    cluster: RealCluster, approaches: list[str], sizes: list[int], rounds: int, seed: int
) -> dict[int, dict[str, list[float]]]:
    """Milliseconds by size and approach, a number a round."""
    order = random.Random(seed)
    async with _connected(cluster.kubeconfig) as (connection, outside):
        bench = Bench(connection, outside)
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
    """The medians and their ratios to ungrouped; the ratio's range is the middle half of the rounds' own ratios."""
    lines = []
    for size, by_approach in results.items():
        base = by_approach["ungrouped"]
        lines.append(f"{nodes} nodes, gang of {size}, {len(base)} rounds, default sampling")
        for approach, times in by_approach.items():
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
    parser.add_argument("--config", help="the service's settings (YAML), as of `escher serve --config`")
    parser.add_argument("--json", action="store_true", help="raw data on standard output instead of tables")
    given = parser.parse_args()
    if "ungrouped" not in given.approaches:
        parser.error("--approaches must include ungrouped: everything is a ratio to it")
    raw = {}
    for nodes in given.nodes:
        say(f"starting a control plane of {nodes} nodes")
        settings = ["--config", given.config] if given.config else []
        with RealCluster.start(nodes=nodes, native_gangs=True, service_arguments=settings) as cluster:
            results = uvloop.run(measure(cluster, given.approaches, given.sizes, given.rounds, given.seed))
        raw[nodes] = results
        if not given.json:
            sys.stdout.write(table(nodes, results) + "\n")
    if given.json:
        sys.stdout.write(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
