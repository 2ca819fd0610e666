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
from collections.abc import AsyncIterator, Callable, Iterable
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
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_OTHERS = "gang-latency-others"
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
    "job": _ungrouped,
    "job-gang": _extender,
}
_BASE = {"job": "job", "job-gang": "job"}
"""What an approach is compared with, where that is not `ungrouped`."""


def _job(approach: str, gang: str, size: int) -> Manifest:
    pod = APPROACHES[approach](gang, gang, size)
    template = {
        "metadata": {key: value for key, value in pod["metadata"].items() if key in ("labels", "annotations")},
        "spec": pod["spec"] | {"restartPolicy": "Never"},
    }
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": gang}, "spec": spec}


def _waiting(number: int) -> list[Manifest]:
    """A pod on a node, and a gang of two of which only one has room there beside it."""
    there = {"kubernetes.io/hostname": f"node-{number}"}
    pods = [_pod(f"there-{number}", "escher-resources")]
    pods += [_extender(f"waits-{number}-{member}", f"waits-{number}", 2) for member in range(2)]
    for pod, cpu in zip(pods, ("4", "3", "3"), strict=True):
        pod["metadata"]["namespace"] = _OTHERS
        pod["spec"]["nodeSelector"] = there
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return pods


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

    async def _create(self, bodies: Iterable[Manifest]) -> None:
        left = iter(bodies)

        async def create() -> None:
            for body in left:
                await self._post(_PODS, body)

        await asyncio.gather(*(create() for _ in range(_CREATORS)))

    async def let_others_wait(self, gangs: int) -> None:
        """In another namespace so many gangs wait for room from now on."""
        await self._post("/api/v1/namespaces", {"metadata": {"name": _OTHERS}})
        for number in range(gangs):
            for pod in _waiting(number):
                await self._post(f"/api/v1/namespaces/{_OTHERS}/pods", pod)
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
        began = time.perf_counter()
        if approach in _BASE:
            await self._post(_JOBS, _job(approach, gang, size))
        else:
            await self._create(APPROACHES[approach](f"{gang}-{number}", gang, size) for number in range(size))
        took = math.inf
        try:
            await self._outside.until(lambda: len(bound_at) == size, gang)
            took = max(bound_at.values()) - began
        except TimeoutError as stuck:
            say(f"\n{stuck}\n")
        if approach in _BASE:
            await self._connection.request("DELETE", f"{_JOBS}/{gang}", b'{"propagationPolicy":"Background"}')
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
