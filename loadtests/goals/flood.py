"""Flood: measures how long a filter call waits while a watch sends very many events at once.

    python -m loadtests.goals.flood                                 # 10,000 events
    python -m loadtests.goals.flood --events 50000 --nodes 500

One process, one event loop, one `Scheduler` as the service builds it with 5,000 nodes, and no network. The reflector
gets the bytes of a watch's lines all at once, as after a pause. Each pass of the event loop answers a filter call with
the names of 500 nodes, as if it had just been read. The result is the duration of the passes in between, in CPU time,
so that other processes disturb it little.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from extender.adapters.http.metrics import verb_metrics
from extender.adapters.http.verbs.verbs import VerbCalls
from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.core.cluster import Pod
from extender.kube.client.requests import JSON, TIMEOUT
from loadtests.goals import core_costs
from loadtests.goals.measuring import in_process, objects

EVENTS, NODES, NAMES = 10_000, 5_000, 500
_WAIT = 60.0


class Told(NamedTuple):
    """`waits`: CPU seconds between the end of a filter call and the next. `calls`: of each call."""

    waits: list[float]
    calls: list[float]
    events: int


class Stream:
    """Implements `Requests`: an empty list, and one watch that sends all these lines at once."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self.over = False

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        return b'{"metadata":{"resourceVersion":"1"},"items":[]}'

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        for line in self._lines:
            yield line
        self.over = True
        await asyncio.Event().wait()


class Taken:
    """The sink: passes everything to the `Scheduler`, and counts it."""

    def __init__(self, cluster: in_process.Cluster) -> None:
        self._cluster = cluster
        self.events = 0

    def replace(self, pods: object) -> Iterable[None]:
        return ()

    def upsert(self, pod: Pod) -> None:
        self.events += 1
        self._cluster.do(self._cluster.scheduler.observe(pod))

    def remove(self, pod: Pod) -> None:
        self.events += 1
        self._cluster.do(self._cluster.scheduler.forget(pod))


def lines(events: int, nodes: int) -> list[bytes]:
    """Returns lines of pods in sequence: created, bound, running, being deleted, gone."""
    found: list[bytes] = []
    while len(found) < events:
        number = len(found)
        found += in_process.lines_of(objects.life(number, 7, 2**31 + number, objects.node_name(97 * number % nodes)))
    return found[:events]


async def told(cluster: in_process.Cluster, of: Sequence[bytes]) -> Told:
    calls = VerbCalls(core_costs.Verbs(cluster), verb_metrics(CollectorRegistry()), _WAIT)  # type: ignore[arg-type]
    body = objects.encoded({"Pod": core_costs.asked_about(), "NodeNames": cluster.names[:NAMES], "Nodes": None})
    stream, sink = Stream(of), Taken(cluster)
    waits, took = list[float](), list[float]()
    following = asyncio.ensure_future(Reflector(stream, kinds.pods(_WAIT), sink).run())
    while not stream.over:
        began = time.process_time()
        await asyncio.sleep(0)
        waits.append(time.process_time() - began)
        took.append(in_process.spent_on(lambda: calls.filter(body)))
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    return Told(waits, took, sink.events)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.flood", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--events", type=int, default=EVENTS, help=f"that come at once (default: {EVENTS})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"of the cluster (default: {NODES})")
    wanted = parser.parse_args(given)
    if wanted.events < 100 or wanted.nodes < 1:
        parser.error("--events should be 100 or more, --nodes 1 or more")
    with in_process.collector_as_it_was():
        cluster = in_process.Cluster(wanted.nodes, 0)
        of = lines(wanted.events, wanted.nodes)
        in_process.as_in_a_service_that_is_ready()
        flood = asyncio.run(told(cluster, of))
    waits = sorted(flood.waits)
    rows = [
        ("events taken in", float(flood.events), ""),
        ("filter calls answered meanwhile", float(len(flood.calls)), ""),
        ("CPU for all events", sum(waits), "s"),
        ("a filter call waits, median", statistics.median(waits) * 1e3, "ms"),
        ("a filter call waits, 99 of 100", waits[len(waits) * 99 // 100] * 1e3, "ms"),
        ("a filter call waits, the longest", waits[-1] * 1e3, "ms"),
        ("a filter call itself, median", statistics.median(flood.calls) * 1e3, "ms"),
    ]
    for name, value, unit in rows:
        sys.stdout.write(f"{name:<36}{value:12,.2f} {unit}".rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
