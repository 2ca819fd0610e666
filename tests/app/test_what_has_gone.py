"""Pods and gangs that come and go leave nothing behind but what is bounded, and is little of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from extender.core.gang_ask import GANG_LABEL, MIN_MEMBER
from extender.core.names import DOMAIN
from kubesim.kinds import POD
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from tests.reachable import sizes

pytestmark = pytest.mark.anyio

MAY_GROW = {
    "Cache.ended": "16,384 UIDs",
    "EventRecorder._told": "4,096 keys of events",
    "_Log.kept": "5,000 decisions",
    "FlightRecorder._entries": "500 decisions",
    "PodAffinityIndex._followed": "who stands near whom, of 64 asks",
    "PodAffinityIndex._versions": "and when the answer was another one last",
    "_Since.told": "4,096 holders of which policies have not asked",
    "ResidentPods._growing_old": "pods that will have run for long: 1,024 more than twice as many as there are",
}
"""Whatever is bounded, and still filling here."""


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


def pod(name: str, cpu: str, gang: str | None = None, apart: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": {"app": "web"}, "annotations": {}}
    spec: dict[str, Any] = {
        "schedulerName": "escher",
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
    }
    if gang is not None:
        metadata["labels"][GANG_LABEL] = gang
        metadata["annotations"][MIN_MEMBER] = "3"
    if name.endswith("1"):
        metadata["annotations"][f"{DOMAIN}/run-seconds"] = "5"
    if apart:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {GANG_LABEL: gang}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def come(number: int) -> list[dict[str, Any]]:
    """Single pods and gangs, those that fit and those that never will, and a gang whose members are to be apart."""
    gangs = [("fits", "1", False), ("apart", "1", True), ("never", "90", False), ("waits", "7", False)]
    return [
        *(pod(f"single-{number}-{each}", "1") for each in range(4)),
        pod(f"never-{number}", "90"),
        *(
            pod(f"{name}-{number}-{each}", cpu, f"{name}-{number}", apart)
            for name, cpu, apart in gangs
            for each in range(3)
        ),
    ]


async def test_whatever_has_come_and_gone_is_forgotten() -> None:
    found: list[Counter[str]] = []
    async with Simulation(nodes=4, node_shape=NodeShape(cpu="8")) as simulation:
        for number in range(4):
            made = come(number)
            for each in made:
                await simulation.create(each, POD)
            await asyncio.sleep(60)
            for each in made:
                path = f"/api/v1/namespaces/default/pods/{each['metadata']['name']}?gracePeriodSeconds=0"
                await simulation.ask("DELETE", path)
            await asyncio.sleep(600)
            found.append(sizes(simulation.application, but=MAY_GROW))
        await simulation.create(pod("stays", "1"), POD)
        await asyncio.sleep(60)
        with_one_more = sizes(simulation.application, but=MAY_GROW)
    before, after = found[-2:]
    grown = {name for name in after if after[name] > before[name]}
    assert {name: [each[name] for each in found] for name in grown} == {}
    assert {name for name in after if with_one_more[name] > after[name]} >= {"PolicyMatching._pods", "Row.holdings"}
