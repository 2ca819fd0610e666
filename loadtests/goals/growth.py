"""Measures the service's tables as a cluster grows: memory, and CPU time for a pod and for all.

    python -m loadtests.goals.growth                                # 15,000 nodes, 500,000 pods; four minutes, 3 GiB
    python -m loadtests.goals.growth --nodes 5000 --pods 50000      # to compare with

One process, one `Scheduler` as the service builds it, and no network. Pods are read from the bytes of a watch's lines,
and taken in like the first list. Times are CPU time, one number each; docs/scaling.md uses them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from prometheus_client import CollectorRegistry

from extender.adapters.forked import Forked
from extender.adapters.http.server.asgi import create_app
from extender.adapters.kubernetes.codecs import kinds
from extender.core.cluster import Pod
from loadtests.goals import core_costs
from loadtests.goals.at_scale import resident_and_proportional
from loadtests.goals.measuring import in_process, objects
from loadtests.shared.progress import say

NODES, PODS = 15_000, 500_000
_PAGE = 500
_EVENTS, _CALLS, _AUDITS, _COPIES = 200, 40, 3, 9
_WAIT = 60.0


def sampled(nodes: int) -> int:
    """Returns the fewest nodes that kube-scheduler names in a filter call, by default.

    It is 50 % less 1 % for each 125 nodes, at least 5 % and 100 nodes (Kubernetes' "Scheduler Performance Tuning").
    """
    return min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))


def measures(nodes: int, pods: int) -> Iterator[tuple[str, float, str]]:
    small, _ = resident_and_proportional(os.getpid())
    cluster = in_process.Cluster(nodes, 0)
    watched = kinds.pods(_WAIT)
    found: list[Pod] = []
    read = size = 0.0
    made = objects.bound_pods(pods, nodes)
    while page := [objects.encoded({"type": "ADDED", "object": each}) for each in islice(made, _PAGE)]:
        size += sum(map(len, page))
        read += in_process.spent_on(lambda page=page: found.extend(watched.read_event(line).item for line in page))
        if not len(found) % (50 * _PAGE):
            say(f"{len(found):,} of {pods:,} pods")
    taken = in_process.spent_on(lambda: cluster.replace(Pod, found))
    found.clear()
    in_process.as_in_a_service_that_is_ready()
    large, _ = resident_and_proportional(os.getpid())
    yield "bytes of a bound pod, as a watch tells it", size / pods, "bytes"
    yield "bytes of a node", statistics.mean(len(objects.encoded(each)) for each in objects.nodes(100)), "bytes"
    yield "memory for nodes and pods", large - small, "MiB"
    yield "first list: read", read, "s"
    yield "first list: taken in", taken, "s"
    reading, applying = zip(*_events(cluster, nodes), strict=True)
    yield "a pod's event: read", statistics.median(reading) * 1e6, "us"
    yield "a pod's event: applied", statistics.median(applying) * 1e6, "us"
    for names, told in ((sampled(nodes), "a sample of"), (nodes, "all")):
        yield f"a filter call, {told} {names:,} names", _filter(cluster, names) * 1e3, "ms"
    audits = [in_process.spent_on(cluster.scheduler.cache.violations) for _ in range(_AUDITS)]
    yield "all invariants checked", statistics.median(audits) * 1e3, "ms"
    pauses, cache = zip(*_copies(), strict=True)
    yield "pause in which a copy is made", statistics.median(pauses) * 1e3, "ms"
    yield "page tables of a copy", statistics.median(cache), "MiB"


def _copies() -> Iterator[tuple[float, float]]:
    """Yields seconds of the clock in which forking stops the event loop, and MiB of page tables."""
    forked = Forked()

    async def ask() -> tuple[float, float]:
        asked, began = asyncio.ensure_future(forked.in_a_copy(_page_tables)), time.perf_counter()
        await asyncio.sleep(0)
        pause = time.perf_counter() - began
        return pause, await asked

    for _ in range(_COPIES):
        yield asyncio.run(ask())


def _page_tables() -> float:
    with open("/proc/self/status") as said:
        return next(int(line.split()[1]) / 1024 for line in said if line.startswith("VmPTE"))


def _events(cluster: in_process.Cluster, nodes: int) -> Iterator[tuple[float, float]]:
    """Yields CPU seconds to read and to apply an event, averaged over the life of a pod."""
    watched = kinds.pods(_WAIT)
    for number in range(_EVENTS):
        states = objects.life(5 * number, 7, 2**31 + number, objects.node_name(97 * number % nodes))
        lines = list(in_process.lines_of(states))
        events: list[object] = []
        reading = in_process.spent_on(lambda lines=lines, events=events: events.extend(map(watched.read_event, lines)))
        applying = in_process.spent_on(lambda events=events: [in_process.apply(cluster, event) for event in events])
        yield reading / len(lines), applying / len(lines)


def _filter(cluster: in_process.Cluster, names: int) -> float:
    """Returns the median seconds from request bytes to answer bytes."""
    app = create_app(core_costs.Verbs(cluster), None, ready=lambda: True, registry=CollectorRegistry())  # type: ignore[arg-type]
    body = objects.encoded({"Pod": core_costs.asked_about(), "NodeNames": cluster.names[:names], "Nodes": None})
    loop = asyncio.new_event_loop()
    try:
        return statistics.median(in_process.spent_on(partial(core_costs.call, loop, app, body)) for _ in range(_CALLS))
    finally:
        loop.close()


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=NODES, help=f"of the cluster (default: {NODES})")
    parser.add_argument("--pods", type=int, default=PODS, help=f"that are bound (default: {PODS})")
    wanted = parser.parse_args(given)
    if min(wanted.nodes, wanted.pods) < 1:
        parser.error("--nodes and --pods should be 1 or more")
    with in_process.collector_as_it_was():
        for name, value, unit in measures(wanted.nodes, wanted.pods):
            sys.stdout.write(f"{name:<46}{value:12,.2f} {unit}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
