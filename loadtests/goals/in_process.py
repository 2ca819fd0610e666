"""A `Scheduler` with a cluster in this process, what it is told, and what that costs: for figures of the core."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from extender.app.contracts.effects import Decided
from extender.app.cycle.scheduler import Fact, Scheduler
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey
from extender.kube.names import CPU, PODS, NodeName, PodUid, ResourceKey
from loadtests.goals import objects

ON_NODE = 16_000
NOW = 1_000_000.0
T = TypeVar("T")


class _Clock:
    def now(self) -> float:
        return NOW

    steady = now


class Cluster:
    """Nodes of 16 CPU, each with as many bound pods of 1 CPU as there are for it."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.scheduler = Scheduler(_Clock())
        self.names = [NodeName(objects.node_name(number)) for number in range(nodes)]
        room = {CPU: ON_NODE, ResourceKey("memory"): 64 << 30, PODS: 110}
        self.replace(Node, [Node(name, room, room) for name in self.names])
        bound = (self.pod(f"bound-{number}", 1000, node=self.names[number % nodes]) for number in range(pods))
        self.replace(Pod, bound)
        self._made = count()

    def replace(self, kind: type[Fact], facts: Iterable[Fact]) -> None:
        """These of the kind and no others exist, from one moment to the next."""
        for _ in self.scheduler.replace(kind, facts):
            pass
        self.do(self.scheduler.settle())

    def pod(self, name: str, cpu: int, **facts: Any) -> Pod:
        requests = {CPU: cpu, ResourceKey("memory"): 128 << 20, PODS: 1}
        return Pod(PodUid(f"uid-{name}"), "team", name, requests, scheduler="escher", **facts)

    def gang(self, cpu: int, size: int) -> list[Pod]:
        """Its members are known, and nobody has asked about them."""
        name = f"gang-{next(self._made)}"
        ask = GangAsk(GangKey("team", name), size)
        members = [self.pod(f"{name}-{number}", cpu, gang=ask) for number in range(size)]
        for member in members:
            self.do(self.scheduler.observe(member))
        return members

    def do(self, decided: Decided[T]) -> T:
        """What is to be done is done by nobody."""
        return decided.answer


@contextmanager
def collector_as_it_was() -> Iterator[None]:
    """After the block; what was measured in it is not looked through with what comes next."""
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.collect()
        if frozen:
            gc.freeze()


def as_in_a_service_that_is_ready() -> None:
    """As `Application.settle_memory` leaves it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def spent_on(work: Callable[[], object]) -> float:
    """Seconds of CPU."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e9


def lines_of(life: Sequence[objects.Json]) -> Iterator[bytes]:
    """What a watch tells of a pod that is made, looks like that from then on, and is gone."""
    for number, state in enumerate(life):
        yield objects.encoded({"type": "MODIFIED" if number else "ADDED", "object": state})
    yield objects.encoded({"type": "DELETED", "object": life[-1]})


def apply(cluster: Cluster, event: Any) -> None:
    cluster.do((cluster.scheduler.forget if event.type == "DELETED" else cluster.scheduler.observe)(event.item))
