"""The witness of a simulation: sees each harm that older versions did, and none in an ordinary day."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from extender.kube.errors import Refused, Unavailable
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, DAEMON_SET, DISRUPTION_BUDGET, POD, PRIORITY_CLASS, Json
from kubesim.virtual_time import VirtualTimeLoop
from lab.simulation import Simulation
from loadtests.harm import harms
from loadtests.harm.embedded import attach
from loadtests.harm.witness import HarmWitness
from loadtests.shared.pods import daemon_set, pod
from tests.harm.old_service import OldService
from tests.kubesim.until import until

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@asynccontextmanager
async def witnessed(nodes: int = 4, **about: Any) -> AsyncIterator[tuple[Simulation, HarmWitness, OldService]]:
    async with Simulation(nodes=nodes, **about) as simulation:
        await simulation.create({"metadata": {"name": "high"}, "value": 10}, PRIORITY_CLASS)
        yield simulation, attach(simulation), OldService(simulation)


async def judged(simulation: Simulation, witness: HarmWitness, *, after: float = 300.0) -> set[str]:
    """The rules that were broken, some time later."""
    await asyncio.sleep(after)
    witness.finish(simulation.clock.now())
    return {each.rule for each in witness.violations()}


def running(simulation: Simulation, prefix: str) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in simulation.cluster.api.store.list(POD, "default")
        if each["metadata"]["name"].startswith(prefix)
        and each["status"].get("phase") == "Running"
        and "deletionTimestamp" not in each["metadata"]
    ]


def on(simulation: Simulation, name: str) -> str:
    found = simulation.cluster.api.store.get(POD, "default", name)
    return "" if found is None else str(found["spec"].get("nodeName"))


async def a_gang(simulation: Simulation, name: str, size: int = 4, **more: Any) -> list[str]:
    """A gang that runs, placed by the service."""
    for number in range(size):
        await simulation.create(pod(f"{name}-{number}", gang=name, quorum=size, **more), POD)
    await until(lambda: len(running(simulation, f"{name}-")) == size)
    return running(simulation, f"{name}-")


async def a_gang_that_waits(simulation: Simulation, name: str = "top", size: int = 2) -> None:
    """Of high priority, and asks for more than any node has."""
    for number in range(size):
        await simulation.create(pod(f"{name}-{number}", gang=name, quorum=size, cpu=99, priority_class="high"), POD)
    await asyncio.sleep(1)


class Owner:
    """Makes its pods anew as they go, as controllers do."""

    def __init__(self, simulation: Simulation, prefix: str, count: int, make: Callable[[str, int], Json]) -> None:
        self._simulation, self._prefix, self._count, self._make = simulation, prefix, count, make
        self._made = 0
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            store = self._simulation.cluster.api.store
            present = {
                each["metadata"]["labels"]["number"]
                for each in store.list(POD, "default")
                if each["metadata"]["name"].startswith(self._prefix) and "deletionTimestamp" not in each["metadata"]
            }
            for number in [number for number in range(self._count) if str(number) not in present]:
                made = self._make(f"{self._prefix}{self._made}", number)
                made["metadata"]["labels"]["number"] = str(number)
                self._made += 1
                await self._simulation.create(made, POD)
            await asyncio.sleep(0.05)


# -- what older versions did -------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_healthy_gang_evicted_after_a_restart_is_seen() -> None:
    async with witnessed() as (simulation, witness, old):
        names = await a_gang(simulation, "train")
        await asyncio.sleep(3600)
        await simulation.ask("DELETE", POD.path("default", names[0]))
        witness.interrupted(simulation.clock.now())
        await asyncio.sleep(60)
        await old.evict_part("train", names[1:])
        assert await judged(simulation, witness) == {harms.PART}
        assert witness.evictions == 3


@pytest.mark.anyio
async def test_a_gang_that_was_whole_before_anybody_looked_is_evicted_by_nobody() -> None:
    """The witness came late; the pods bear no marks."""
    async with Simulation(nodes=4) as simulation:
        names = await a_gang(simulation, "train")
        witness = attach(simulation)
        await OldService(simulation).evict_part("train", names)
        assert await judged(simulation, witness) == {harms.PART}


def pod_groups() -> Json:
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "podgroups.scheduling.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {"group": "scheduling.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }


@pytest.mark.anyio
async def test_a_member_of_another_schedulers_pod_group_that_is_evicted_is_seen() -> None:
    async with witnessed() as (simulation, witness, old):
        await simulation.create(pod_groups(), CUSTOM_RESOURCE_DEFINITION)
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "mpi"},
            "spec": {"minMember": 4},
        }
        await simulation.ask("POST", GROUPS, group)
        for number in range(4):
            made = pod(f"f-{number}", scheduler="coscheduling")
            made["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "mpi"
            await simulation.create(made, POD)
        for number in range(3):
            binding = {"metadata": {"name": f"f-{number}"}, "target": {"kind": "Node", "name": "node-0"}}
            await simulation.ask("POST", POD.path("default", f"f-{number}", "binding"), binding)
        await until(lambda: len(running(simulation, "f-")) == 3)
        await old.evict_part("podgroup.mpi", ["f-0"])
        assert harms.FOREIGN in await judged(simulation, witness, after=30)


@pytest.mark.anyio
async def test_pods_of_a_daemon_set_that_are_evicted_in_a_loop_are_seen() -> None:
    of = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}

    def agent(name: str, number: int) -> Json:
        made = pod(name, cpu=1, labels={"of": "agent"})
        made["spec"]["nodeName"] = f"node-{number}"
        made["metadata"]["ownerReferences"] = [of]
        return made

    async with witnessed() as (simulation, witness, old):
        of["uid"] = (await simulation.create(daemon_set("agent"), DAEMON_SET))["metadata"]["uid"]
        owner = Owner(simulation, "agent-", 4, agent)
        await until(lambda: len(running(simulation, "agent-")) == 4)
        await a_gang_that_waits(simulation)
        for _ in range(3):
            await until(lambda: len(running(simulation, "agent-")) == 4)
            [there] = [name for name in running(simulation, "agent-") if on(simulation, name) == "node-0"]
            await old.preempt("top", [there])
            await asyncio.sleep(25)
        owner.stop()
        broken = await judged(simulation, witness, after=10)
        assert {harms.VICTIM, harms.IN_VAIN} <= broken


@pytest.mark.anyio
async def test_half_a_gang_evicted_under_a_budget_is_seen() -> None:
    async with witnessed() as (simulation, witness, old):
        spec = {"minAvailable": 3, "selector": {"matchLabels": {"escher.dev/gang": "low"}}}
        await simulation.create({"metadata": {"name": "low"}, "spec": spec}, DISRUPTION_BUDGET)
        names = await a_gang(simulation, "low")
        await a_gang_that_waits(simulation)
        await asyncio.sleep(5)
        await old.preempt("top", names)
        assert len(old.refused) == 3
        assert harms.HALF in await judged(simulation, witness)


@pytest.mark.anyio
async def test_an_eviction_without_an_event_and_a_deletion_by_the_service_are_seen() -> None:
    async with witnessed() as (simulation, witness, old):
        names = await a_gang(simulation, "train", 2)
        for method, path, body in (
            ("POST", POD.path("default", names[0], "eviction"), {"metadata": {"name": names[0]}}),
            ("DELETE", POD.path("default", names[1]), None),
        ):
            sent = None if body is None else msgspec.json.encode(body)
            await old._requests.request(method, path, sent)
        assert await judged(simulation, witness) == {harms.UNSTATED, harms.DELETED}


# -- what is no harm ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_gang_that_is_preempted_as_a_whole_for_one_that_then_runs_is_no_harm() -> None:
    async with witnessed() as (simulation, witness, _):
        await a_gang(simulation, "low", cpu=8)
        await a_gang(simulation, "top", cpu=8, priority_class="high")
        assert await judged(simulation, witness) == set()
        assert witness.evictions == 4


async def an_afternoon(seed: int, *, watched: bool) -> tuple[str, list[str]]:
    """Gangs and pods come, end, are deleted and evicted by users; nodes go. What was written, and what was found."""
    drawn = random.Random(seed)
    async with Simulation(seed=seed, nodes=6) as simulation:
        store, written = simulation.cluster.api.store, hashlib.sha256()
        store.subscribe(lambda change: written.update(msgspec.json.encode((change.type, change.object))))
        witness = attach(simulation) if watched else None
        for number in range(20):
            size, cpu, seconds = drawn.choice((2, 3, 4)), drawn.choice((4, 8)), drawn.choice((60, 600, None))
            for member in range(size):
                made = pod(f"g{number}-{member}", gang=f"g{number}", quorum=size, cpu=cpu, run_seconds=seconds)
                await simulation.create(made, POD)
            await simulation.create(pod(f"p{number}", run_seconds=drawn.choice((30, 300))), POD)
            await asyncio.sleep(drawn.expovariate(1 / 60))
            await user_does_something(simulation, drawn)
        await asyncio.sleep(60)
        if witness is not None:
            witness.finish(simulation.clock.now())
            assert witness.events > 300
        return written.hexdigest(), [] if witness is None else [*map(str, witness.violations())]


async def user_does_something(simulation: Simulation, drawn: random.Random) -> None:
    names = running(simulation, "")
    ended = [
        each["metadata"]["name"]
        for each in simulation.cluster.api.store.list(POD, "default")
        if each["status"].get("phase") in ("Succeeded", "Failed")
    ]
    for name in ended:
        await simulation.ask("DELETE", POD.path("default", name))
    try:
        match drawn.randrange(4):
            case 0 if names:
                await simulation.ask("DELETE", POD.path("default", drawn.choice(names)))
            case 1 if names:
                name = drawn.choice(names)
                eviction = {"metadata": {"name": name, "namespace": "default"}}
                await simulation.ask("POST", POD.path("default", name, "eviction"), eviction)
            case 2 if len(names) > 20:
                await simulation.ask("DELETE", POD.path("default"))
    except (Refused, Unavailable):
        return


def in_its_own_time(seed: int, *, watched: bool = True) -> tuple[str, list[str]]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(an_afternoon(seed, watched=watched))


def test_an_ordinary_afternoon_has_no_harm_and_is_the_same_without_a_witness() -> None:
    written, found = in_its_own_time(1)
    assert found == []
    assert in_its_own_time(1, watched=False)[0] == written
