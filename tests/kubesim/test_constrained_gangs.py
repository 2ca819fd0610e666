"""Gangs with required pod affinity and anti-affinity on the embedded cluster, whose scheduler knows these rules too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.app.explain.explain import Explain
from extender.core.gangs.state.gang import HOPELESS
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from kubesim.kinds import POD, PRIORITY_CLASS
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.test_simulation import bound, pods
from tests.kubesim.until import until

MERGE = "application/merge-patch+json"


async def in_zones(simulation: Simulation, zones: str) -> list[str]:
    names = list(simulation.application.scheduler.cache.nodes)
    for name, zone in zip(names, zones, strict=True):
        labels = {"metadata": {"labels": {"zone": zone}}}
        await simulation.ask("PATCH", f"/api/v1/nodes/{name}", labels, content_type=MERGE)
    return [str(name) for name in names]


async def gang(simulation: Simulation, name: str, size: int, kind: str, **more: Any) -> None:
    """Members that have this kind of affinity, podAffinity or podAntiAffinity, to each other."""
    term = {"labelSelector": {"matchLabels": {"escher.dev/gang": name}}, "topologyKey": "zone"}
    for number in range(size):
        manifest = pod(f"{name}-{number}", gang=name, quorum=size, cpu=8, **more)
        manifest["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await simulation.create(manifest, POD)


def held(simulation: Simulation) -> int:
    return sum(
        each.kind is not HoldingKind.BOUND for each in simulation.application.scheduler.cache.ledger.rows.holdings()
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("zones", "size", "kind", "gated"),
    [
        ("abb", 2, "podAffinity", False),
        ("aabbb", 3, "podAffinity", False),
        ("aabbb", 3, "podAffinity", True),
        ("aaabc", 3, "podAntiAffinity", False),
    ],
)
async def test_a_gang_that_can_be_placed_is_within_seconds(zones: str, size: int, kind: str, gated: bool) -> None:
    async with Simulation(nodes=len(zones)) as simulation:
        await in_zones(simulation, zones)
        await gang(simulation, "train", size, kind, gated=gated)
        await until(lambda: bound(simulation, "train") == size, within=10)
        assert simulation.application.scheduler.cache.violations() == []


@pytest.mark.anyio
async def test_one_that_cannot_says_why_holds_nothing_and_stands_in_nobodys_way() -> None:
    async with Simulation(nodes=3) as simulation:
        scheduler = simulation.application.scheduler
        await in_zones(simulation, "aab")
        await gang(simulation, "never", 3, "podAntiAffinity")
        await asyncio.sleep(10)
        for number in range(3):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=3, cpu=8, run_seconds=600), POD)
        await until(lambda: bound(simulation, "train") == 3, within=10)
        await asyncio.sleep(3600)
        assert bound(simulation, "never") == 0
        assert held(simulation) == 0
        conditions = [each["status"]["conditions"] for each in pods(simulation, "never").values()]
        assert all(HOPELESS in str(each) for each in conditions)
        told = Explain(scheduler.cache).gang(GangKey("default", "never"))
        assert "required pod anti-affinity excludes the next from every node with free capacity" in told.summary
        assert "it would not fit on empty nodes either" in told.summary
        assert any(remedy.startswith("relax what its members require") for remedy in told.remedies)


@pytest.mark.anyio
async def test_nobody_is_evicted_for_one_that_could_be_placed_nowhere() -> None:
    async with Simulation(nodes=4) as simulation:
        await in_zones(simulation, "aaaa")
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 10,
        }
        await simulation.create(high, PRIORITY_CLASS)
        for number in range(4):
            await simulation.create(pod(f"low-{number}", gang="low", quorum=4, cpu=8), POD)
        await until(lambda: bound(simulation, "low") == 4)
        running = {each["metadata"]["uid"] for each in pods(simulation, "low").values()}
        await gang(simulation, "top", 2, "podAntiAffinity", priority_class="high")
        await asyncio.sleep(1800)
        assert {each["metadata"]["uid"] for each in pods(simulation, "low").values()} == running
        assert bound(simulation, "low") == 4
