"""A `Scheduler` with a cluster in this process, and the CPU time of its calls, for core figures."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from extender.adapters.memory import SMALL_COLLECTIONS
from extender.app.contracts.effects import Decided
from extender.app.cycle.scheduler import Fact, Scheduler
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey
from extender.kube.names import CPU, PODS, NodeName, PodUid, ResourceKey
from loadtests.goals.measuring import objects

ON_NODE = 16_000
NOW = 1_000_000.0
T = TypeVar("T")


class _Clock:
    def now(self) -> float:
        return NOW

    steady = now


class Cluster:
    """Nodes of 16 CPU, with `pods` bound pods of 1 CPU spread evenly over them."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.scheduler = Scheduler(_Clock())
        self.names = [NodeName(objects.node_name(number)) for number in range(nodes)]
        room = {CPU: ON_NODE, ResourceKey("memory"): 64 << 30, PODS: 110}
        self.replace(Node, [Node(name, room, room) for name in self.names])
        bound = (self.pod(f"bound-{number}", 1000, node=self.names[number % nodes]) for number in range(pods))
        self.replace(Pod, bound)
        self._made = count()

    def replace(self, kind: type[Fact], facts: Iterable[Fact]) -> None:
        """Makes these the only objects of their kind, in one step."""
        for _ in self.scheduler.replace(kind, facts):
            pass
        self.do(self.scheduler.settle())

    def pod(self, name: str, cpu: int, **facts: Any) -> Pod:
        requests = {CPU: cpu, ResourceKey("memory"): 128 << 20, PODS: 1}
        return Pod(PodUid(f"uid-{name}"), "team", name, requests, scheduler="escher", **facts)

    def gang(self, cpu: int, size: int) -> list[Pod]:
        """Returns members that the scheduler knows, and that were never filtered."""
        name = f"gang-{next(self._made)}"
        ask = GangAsk(GangKey("team", name), size)
        members = [self.pod(f"{name}-{number}", cpu, gang=ask) for number in range(size)]
        for member in members:
            self.do(self.scheduler.observe(member))
        return members

    def do(self, decided: Decided[T]) -> T:
        """Returns the answer, and drops the effects."""
        return decided.answer


@contextmanager
def collector_as_it_was() -> Iterator[None]:
    """Restores the garbage collector after the block, and collects the block's objects."""
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
    """Sets the collector as `Application.settle_memory` does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SMALL_COLLECTIONS)


def spent_on(work: Callable[[], object]) -> float:
    """Returns CPU seconds."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e9


def lines_of(life: Sequence[objects.Json]) -> Iterator[bytes]:
    """Yields a watch's lines for a pod that is created, has these states in turn, and is gone."""
    for number, state in enumerate(life):
        yield objects.encoded({"type": "MODIFIED" if number else "ADDED", "object": state})
    yield objects.encoded({"type": "DELETED", "object": life[-1]})


def apply(cluster: Cluster, event: Any) -> None:
    cluster.do((cluster.scheduler.forget if event.type == "DELETED" else cluster.scheduler.observe)(event.item))
