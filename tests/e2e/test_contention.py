"""Contention on the real control plane: 50 gangs and many ordinary pods on nodes that hold a third of the gangs.

Judged from outside, from a watch of the pods alone: who waited, who was first in turn, who passed it, what stood idle.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from lab.controlplane.api import Api, ApiError
from loadtests.harm.control_plane import Follower
from loadtests.shared.pods import Json
from loadtests.shared.reading import quorum_of
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, fresh_arena, shared_field, unharmed
from tests.e2e.workload import Arena, Field

pytestmark = [REAL_ONLY, pytest.mark.timeout(400)]

SEED = 50
GANGS, NODES, CPU_OF_NODE, CPU_OF_MEMBER = 50, 40, 8, 2
PRIORITIES = {"low": 0, "normal": 100, "urgent": 1000}
RATE = 50
"""Pods created a second: kube-scheduler's queue stays short, so that its throughput is not what is measured."""
PASSES = 8
"""The service's default: so often the first in turn may be passed."""
STUCK = 10.0
UNDER_WAY = 8
"""Gangs that have their plan when the first in turn has been passed often enough, and are bound after that."""


@pytest.fixture(scope="module")
def narrow_field(state_folder: Path, where: str) -> Iterator[Field]:
    yield from shared_field(where, nodes=NODES, audit=True)


@pytest.fixture
def witness(narrow_field: Field) -> Iterator[Follower]:
    yield from unharmed(narrow_field)


@pytest.fixture
def arena(narrow_field: Field, witness: Follower, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(narrow_field, request.node.name)


@dataclass
class Film:
    """Everything that a watch of the pods tells, with the time at which it did."""

    api: Api
    path: str
    frames: list[tuple[float, Json]] = field(default_factory=list)
    ending: bool = False

    def start(self) -> None:
        self.version = self.api.get(self.path)["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, daemon=True, name="film").start()

    def _follow(self) -> None:
        while not self.ending:
            try:
                for event in self.api.watch(self.path, resourceVersion=self.version):
                    self.frames.append((time.monotonic(), event["object"]))
                    self.version = event["object"]["metadata"]["resourceVersion"]
            except (httpx.HTTPError, ApiError, RuntimeError):
                if self.ending:
                    return


@dataclass
class Told:
    """A gang as the film shows it."""

    size: int
    priority: int
    seen: list[str] = field(default_factory=list)
    bound: int = 0
    passed: list[str] = field(default_factory=list)
    """Gangs that were bound while this one was first in turn, and were not."""

    @property
    def waits(self) -> bool:
        return len(self.seen) == self.size and not self.bound


@dataclass
class Judgement:
    """`idle`: for how many seconds at most there was room for the gang that was first in turn; of which gang."""

    passed: dict[str, list[str]] = field(default_factory=dict)
    idle: tuple[float, str] = (0.0, "")
    order: list[str] = field(default_factory=list)


def judged(frames: list[tuple[float, Json]]) -> Judgement:
    """All gangs ask for the same; a gang's turn is by priority, then by when its first member was there."""
    gangs: dict[str, Told] = {}
    used: dict[str, int] = defaultdict(int)
    placed: dict[str, str] = {}
    over: set[str] = set()
    judgement = Judgement()
    fits_since: tuple[float, str] | None = None

    def first() -> str | None:
        waiting = [name for name, gang in gangs.items() if gang.waits]
        return min(waiting, key=lambda name: -gangs[name].priority, default=None)

    for when, pod in frames:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        gang = quorum_of(pod)
        if gang is not None:
            told = gangs.setdefault(gang[0], Told(gang[1], pod["spec"].get("priority", 0)))
            if name not in told.seen:
                told.seen.append(name)
        cpu = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        if node and name not in placed:
            placed[name] = node
            used[node] += cpu
            if gang is not None:
                head = first()
                if not told.bound:
                    judgement.order.append(gang[0])
                    if head is not None and head != gang[0] and _turn(gangs, head) < _turn(gangs, gang[0]):
                        gangs[head].passed.append(gang[0])
                told.bound += 1
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") and name in placed and name not in over:
            over.add(name)
            used[placed[name]] -= cpu
        # A gang that is being bound has its places, though they are not all taken yet.
        begun = sum(gang.size - gang.bound for gang in gangs.values() if gang.bound)
        free = sum((CPU_OF_NODE - used[f"node-{number}"]) // CPU_OF_MEMBER for number in range(NODES)) - begun
        head = first()
        if fits_since is not None and (head != fits_since[1] or free < gangs[head].size):
            judgement.idle = max(judgement.idle, (when - fits_since[0], fits_since[1]))
            fits_since = None
        if fits_since is None and head is not None and free >= gangs[head].size:
            fits_since = (when, head)
    judgement.passed = {name: gang.passed for name, gang in gangs.items() if gang.passed}
    return judgement


def _turn(gangs: dict[str, Told], name: str) -> tuple[int, int]:
    return -gangs[name].priority, list(gangs).index(name)


def workload(arena: Arena, drawn: random.Random, *, gated: bool) -> list[Json]:
    """Gangs of 4 to 24, and ordinary pods between them."""
    pods = []
    for number in range(GANGS):
        size = drawn.choice((4, 4, 6, 8, 12, 16, 24))
        priority = drawn.choices(list(PRIORITIES), (3, 6, 1))[0]
        seconds = drawn.choice((5, 8))
        more: Json = {"run_seconds": seconds, "cpu": CPU_OF_MEMBER, "priority_class": priority, "gated": gated}
        pods += arena.gang(f"g{number}", size, **more)
        for single in range(drawn.randrange(6)):
            pods.append(arena.pod(f"p{number}-{single}", run_seconds=drawn.choice((3, 5)), cpu=1))
    return pods


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
def test_all_gangs_run_in_turn_none_in_part_and_nothing_stands_idle(arena: Arena, gated: bool) -> None:
    for name, value in PRIORITIES.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    pods = workload(arena, random.Random(SEED), gated=gated)
    members = sum(quorum_of({**each, "metadata": {**each["metadata"], "namespace": ""}}) is not None for each in pods)
    assert members * CPU_OF_MEMBER > 2.9 * NODES * CPU_OF_NODE
    film = Film(arena.api, arena.pods_path)
    film.start()
    began = time.monotonic()
    for index, each in enumerate(pods):
        threading.Event().wait(max(0.0, began + index / RATE - time.monotonic()))
        arena.create(each)

    def all_done() -> bool:
        return all(each["status"].get("phase") == "Succeeded" for each in arena.pods().values())

    eventually(all_done, within=180, what="the end of all pods")
    took = time.monotonic() - began
    film.ending = True
    verdict = judged(film.frames)

    assert len(verdict.order) == GANGS
    report = arena.assert_witnessed()
    most = max(map(len, verdict.passed.values()), default=0)
    arena.field.measured.append(
        f"contention, seed {SEED}: {GANGS} gangs{' behind our gate' if gated else ''}, {members} members, "
        f"{len(pods) - members} other pods in {took:.0f} s; the first in turn was passed {most} times at most, and had "
        f"room for {1000 * verdict.idle[0]:.0f} ms at most "
        f"before it was bound; longest burst {1000 * report.longest_burst:.0f} ms"
    )
    assert most <= PASSES + UNDER_WAY, verdict.passed
    # Measured, and below a second behind our gate: without it kube-scheduler's back-off of a second comes on top. Here
    # only that nothing is forgotten.
    assert verdict.idle[0] <= STUCK, verdict.idle
