"""Many kinds of pods wait in a namespace that may have few: each runs as soon as there is room for it."""

from __future__ import annotations

import asyncio

import pytest

from extender.core.tenancy.isolation import Counted
from extender.settings.settings import Settings
from kubesim.kinds import POD
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TWO = Settings.model_validate({"isolation": {"namespaces": {"default": {"waiting_kinds": 2}}}})


@pytest.mark.parametrize("scheduler", ["escher", "escher-ledger"])
async def test_pods_of_kinds_beyond_the_quota_run_as_soon_as_there_is_room(scheduler: str) -> None:
    async with Simulation(nodes=1, node_shape=NodeShape(), settings=TWO) as simulation:
        store = simulation.cluster.api.store

        def running() -> list[str]:
            found = store.list(POD, "default")
            return [each["metadata"]["name"] for each in found if each["spec"].get("nodeName")]

        def quota() -> tuple[int, int | None, int]:
            """Used, limit, and beyond it."""
            found = simulation.application.management.quota.quota("default")
            return (*found.counted[Counted.WAITING_KINDS], found.waiting[Counted.WAITING_KINDS])

        apart = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "apart"}}
        path = "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies"
        await simulation.ask("POST", path, {**apart, "spec": {"type": "anti-affinity", "selector": {}}})
        await asyncio.sleep(1)
        for number in range(7):
            await simulation.create(pod(f"pod-{number}", scheduler, cpu=f"{100 + number}m"), POD)
            await asyncio.sleep(1)
        assert running() == ["pod-0"]
        for waiting in range(6, 0, -1):
            assert quota() == (min(2, waiting), 2, max(0, waiting - 2))
            [ends] = running()
            await simulation.ask("DELETE", f"/api/v1/namespaces/default/pods/{ends}?gracePeriodSeconds=0")
            await until(running, within=5)
            await asyncio.sleep(5)
        assert simulation.application.scheduler.cache.violations() == []
