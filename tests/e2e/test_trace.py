"""A real cluster's nodes and tasks through the real kube-scheduler with the extender.

All 1,523 nodes of Alibaba's GPU cluster trace v2023 and its first 2,000 pods, in the order of their creation and in
much less time. What the trace does not have is made, always in the same way from `SEED`:

- Gangs. Pods of equal shape are cut, in the order of their creation, into gangs of sizes drawn from `SIZES` (size 1:
  a pod of its own; the rest of a shape is a smaller gang). All members are created one after another, when the first
  of them was. In every tenth gang of four or more the quorum is three quarters of the size.
- Scarcity. The trace asks for a quarter of its cluster's GPUs. Every gang and every fifth single pod with GPUs
  therefore asks for one GPU model, drawn from `MODELS`, in which rare ones are frequent: not all of them fit.

A share of a GPU takes a whole one, as with NVIDIA's device plugin when it does not share.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lab.controlplane.nodes import GPU, GPU_MODEL_LABEL
from lab.controlplane.trace import TracePod, read_nodes, read_pods
from loadtests.shared.ledger import saved
from loadtests.shared.room import RoomWatch, partly_bound, saved_in_vain, waiting_though_there_is_room
from loadtests.shared.sightings import GangSeen
from tests.e2e.conftest import shared_field
from tests.e2e.workload import Arena, Field, together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = 2023
NODES, PODS = 1523, 2000
SIZES = {1: 80, 2: 8, 4: 6, 8: 4, 16: 2, 32: 1}
MODELS = {"V100M16": 4, "V100M32": 4, "P100": 4, "G3": 2, "T4": 2, "G2": 1}
"""Both: how often, relative to each other."""
RATE = 100
"""Pods created per second."""
STUCK = 45
"""Seconds. kube-scheduler's longest back-off is 10 s; what it gives up for longer has to be woken."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Together:
    """Pods of the trace that are created together: a gang, or a single pod without a quorum."""

    pods: Sequence[TracePod]
    quorum: int | None = None
    model: str | None = None

    @property
    def name(self) -> str:
        return self.pods[0].name.removeprefix("openb-")


def formed(pods: Sequence[TracePod], seed: int) -> list[Together]:
    """All the pods, some of them in gangs, in the order in which the first of each was created."""
    drawn = random.Random(seed)
    shapes: dict[tuple[int, ...], list[TracePod]] = defaultdict(list)
    for each in pods:
        assert not each.gpu_models, "the list without GPU models is expected"
        shapes[each.cpu_milli, each.memory_mib, each.gpus, each.gpu_milli].append(each)
    made = []
    for alike in shapes.values():
        rest = alike
        while rest:
            size = drawn.choices(list(SIZES), list(SIZES.values()))[0]
            members, rest = rest[:size], rest[size:]
            single, elastic = len(members) == 1, len(members) >= 4 and drawn.random() < 0.1
            quorum = len(members) * 3 // 4 if elastic else len(members)
            scarce = members[0].gpus and (not single or drawn.random() < 0.2)
            model = drawn.choices(list(MODELS), list(MODELS.values()))[0] if scarce else None
            made.append(Together(members, None if single else quorum, model))
    return sorted(made, key=lambda each: each.pods[0].name)


def objects(arena: Arena, unit: Together, scheduler: str) -> list[Json]:
    """The unit's pods as they are given to the API server."""
    gang = {} if unit.quorum is None else {"gang": unit.name, "quorum": unit.quorum}
    selector = {GPU_MODEL_LABEL: unit.model} if unit.model else {}
    return [
        arena.pod(
            each.name,
            scheduler,
            selector=selector,
            **gang,
            cpu=f"{each.cpu_milli}m",
            memory=f"{each.memory_mib}Mi",
            **({GPU: each.gpus} if each.gpus else {}),
        )
        for each in unit.pods
    ]


def create_at(rate: float, arena: Arena, pods: Sequence[Json]) -> None:
    """The pods exist, created in this order and so many per second at most."""
    began = time.monotonic()

    def create(index: int, each: Json) -> None:
        threading.Event().wait(max(0.0, began + index / rate - time.monotonic()))
        arena.api.post(arena.pods_path, each)

    together([lambda index=index, each=each: create(index, each) for index, each in enumerate(pods)], threads=8)  # type: ignore[misc]


def settled(arena: Arena, nodes: list[Json]) -> list[Json]:
    """The test's pods, once all that fit are bound and nothing changes any more.

    Fails the test if some that fit are not bound and for `STUCK` seconds nobody is: however slow the machine is.
    """
    before, since = None, time.monotonic()
    while True:
        pods = arena.api.list_all(arena.pods_path)
        bound = split(pods)[0]
        forgotten = waiting_though_there_is_room(nodes, pods, saved(arena.service))
        if bound != before:
            before, since = bound, time.monotonic()
        elif not forgotten:
            return pods
        assert time.monotonic() - since < STUCK, (
            f"{len(forgotten)} could be bound and are not, {len(bound)} of {len(pods)} are: {forgotten[:5]}; "
            f"kube-scheduler says {said_of_waiting(pods).most_common(5)}"
        )
        threading.Event().wait(1.5)


def said_of_waiting(pods: list[Json]) -> Counter[str]:
    """What kube-scheduler says of the pods that wait, and of how many; empty where it has not tried the pod."""
    words = [
        next((c["message"] for c in each["status"].get("conditions") or [] if c["type"] == "PodScheduled"), "")
        for each in pods
        if not each["spec"].get("nodeName")
    ]
    return Counter(words)


def split(pods: list[Json]) -> tuple[set[str], set[str]]:
    """Names of the pods that are bound, and of those that wait."""
    bound = {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}
    return bound, {each["metadata"]["name"] for each in pods} - bound


def assert_sound(arena: Arena, nodes: list[Json], pods: list[Json]) -> None:
    """What must hold at rest: as the API server tells it, as the witness saw it, as the ledger has it."""
    assert RoomWatch(nodes, pods).nodes == {each["metadata"]["name"] for each in nodes}
    assert partly_bound(pods) == []
    assert saved_in_vain(pods, saved(arena.service)) == []
    assert "" not in said_of_waiting(pods), "kube-scheduler has not tried some pods"
    arena.assert_witnessed()
    arena.field.assert_sound()
    assert arena.field.differences() == []
    assert arena.field.unfinished() == []


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def bound_per_second(pods: list[Json]) -> float:
    """From the first creation to the last Binding, whose times Kubernetes tells in whole seconds."""
    bindings = [
        seconds(condition["lastTransitionTime"])
        for each in pods
        for condition in each["status"].get("conditions") or []
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]
    return len(bindings) / (max(bindings) - min(seconds(each["metadata"]["creationTimestamp"]) for each in pods))


def waits(gangs: dict[str, GangSeen]) -> list[float]:
    """Seconds from a gang's first member to its quorum, of those that were bound, in ascending order."""
    return sorted(gang.bound_at - gang.first_seen for gang in gangs.values() if gang.bound_at is not None)


@pytest.fixture(scope="module")
def traces() -> Path:
    """The folder with the trace's files."""
    if not (folder := os.environ.get("ESCHER_TRACES")):
        pytest.skip("ESCHER_TRACES names no folder with Alibaba's GPU cluster trace v2023 (see docs/development.md)")
    return Path(folder)


@pytest.fixture(scope="module")
def field(traces: Path, state_folder: Path, where: str) -> Iterator[Field]:
    """All nodes of the trace, with the service."""
    yield from shared_field(where, node_trace=traces / "openb_node_list_all_node.csv")


@pytest.mark.parametrize("scheduler", ["escher", pytest.param("escher-ledger", marks=pytest.mark.slow)])
def test_all_that_fits_is_bound_no_gang_in_part_and_the_ledger_is_the_clusters(
    arena: Arena, traces: Path, scheduler: str
) -> None:
    units = formed(read_pods(traces / "openb_pod_list_default.csv", limit=PODS), SEED)
    gangs = {each.name: each for each in units if each.quorum is not None}
    nodes = arena.api.list_all("/api/v1/nodes")
    assert len(nodes) == len(read_nodes(traces / "openb_node_list_all_node.csv")) == NODES
    sizes = [len(gang.pods) for gang in gangs.values()]
    # Before anything can fail, so that a failed run tells its seed as well.
    arena.field.measured.append(
        f"trace, {scheduler}, seed {SEED}: {NODES} nodes, {PODS} pods created at {RATE}/s, "
        f"{sum(sizes)} of them in {len(sizes)} gangs of {min(sizes)} to {max(sizes)}"
    )

    create_at(RATE, arena, [each for unit in units for each in objects(arena, unit, scheduler)])
    pods = settled(arena, nodes)

    assert len(pods) == PODS
    assert_sound(arena, nodes, pods)
    bound, waiting = split(pods)
    first = arena.report()
    assert (first.created, first.bound, len(first.gangs)) == (PODS, len(bound), len(gangs))
    waiting_gangs = {name for name, gang in gangs.items() if {each.name for each in gang.pods} <= waiting}
    assert waiting_gangs, "the workload is to have gangs that do not fit"
    rate, latency = bound_per_second(pods), waits(first.gangs)

    # Half of the gangs and a fifth of the other pods end; whole gangs, so that none of the rest is to be gathered anew.
    drawn = random.Random(SEED)
    ended = [unit for unit in units if drawn.random() < (0.5 if unit.quorum is not None else 0.2)]
    leaving = [each.name for unit in ended if unit.name not in waiting_gangs for each in unit.pods]
    together([lambda name=name: arena.api.delete(f"{arena.pods_path}/{name}") for name in leaving], threads=8)  # type: ignore[misc]
    pods = settled(arena, nodes)

    assert len(pods) == PODS - len(leaving)
    assert_sound(arena, nodes, pods)
    now_bound, still_waiting = split(pods)
    assert bound - set(leaving) <= now_bound, "nobody who was bound has lost its place"
    in_time = {name for name in waiting_gangs if not {each.name for each in gangs[name].pods} <= still_waiting}
    assert in_time, "some gang that waited has room now"
    arena.field.measured += [
        f"  {rate:.0f} pods bound per second; {len(bound)} bound, {len(waiting)} without room, "
        f"{len(waiting_gangs)} whole gangs among them",
        f"  gang latency (first member seen to quorum bound): median {1000 * statistics.median(latency):.0f} ms, "
        f"95 % {1000 * latency[len(latency) * 95 // 100]:.0f} ms; longest burst {1000 * first.longest_burst:.0f} ms",
        f"  after {len(leaving)} pods left: {len(now_bound - bound)} of those who waited are bound, "
        f"{len(in_time)} gangs among them",
    ]
