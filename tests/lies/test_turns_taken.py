"""Gangs that cannot be placed come first in turn: those of other tenants wait for one of them, not for each."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.kinds import NAMESPACE, PRIORITY_CLASS
from loadtests.shared.pods import pod
from tests.lies.town import LIAR, THIRD, VICTIM, no_tenants_yet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize(("namespaces", "preempts"), [(2, True), (3, True), (1, False)])
async def test_each_namespace_keeps_the_turn_once_however_many_gangs_it_has(namespaces: int, preempts: bool) -> None:
    """Of gangs that are alike the first is looked at: also where it does not preempt, and the victim's does."""
    async with no_tenants_yet() as town:
        liars = [LIAR, *(f"{LIAR}-{number}" for number in range(1, namespaces))]
        for name in liars[1:]:
            await town.simulation.create({"metadata": {"name": name}}, NAMESPACE)
        never = {"value": 100, "preemptionPolicy": "Never", "metadata": {"name": "never"}}
        await town.simulation.create(never, PRIORITY_CLASS)
        await town.create(THIRD, pod("top", cpu="8", priority_class="high"))
        await town.bound_within(THIRD, "top", 1)
        for number in range(3):
            await town.create(THIRD, pod(f"low-{number}", cpu="8", priority_class="low"))
        await town.bound_within(THIRD, "", 4)
        for number, name in enumerate(liars):
            for each in range(4):
                if preempts:
                    cpu = f"{8000 - 10 * number - each}m"
                    await town.gang(name, f"wide{each}", 4, cpu=cpu, priority_class="mid")
                else:
                    await town.gang(name, f"wide{each}", 2, cpu="8", priority_class="never")
        await asyncio.sleep(5)
        await town.gang(VICTIM, "two", 2, cpu="8", priority_class="mid")
        await town.bound_within(VICTIM, "two-", 2, 60 + 610 * namespaces)
        assert town.simulation.application.scheduler.cache.violations() == []


@pytest.mark.parametrize("deletes", [False, True], ids=("stays", "is deleted when it has lost its turn"))
async def test_a_tenant_does_not_keep_the_turn_with_one_gang_after_another(deletes: bool) -> None:
    async with no_tenants_yet() as town:
        # With this one there, a gang of four whole nodes has no room. The others could leave for two.
        await town.create(THIRD, pod("top", cpu="8", priority_class="high"))
        await town.bound_within(THIRD, "top", 1)
        for number in range(3):
            await town.create(THIRD, pod(f"low-{number}", cpu="8", priority_class="low"))
        await town.bound_within(THIRD, "", 4)
        for each in range(5):
            await town.gang(LIAR, f"wide{each}", 4, cpu="8", priority_class="mid")
        await asyncio.sleep(5)
        await town.gang(VICTIM, "two", 2, cpu="8", priority_class="mid")
        if deletes:
            await asyncio.sleep(650)
            assert town.bound(VICTIM) == {}
            for number in range(4):
                await town.simulation.ask("DELETE", f"/api/v1/namespaces/{LIAR}/pods/wide0-{number}")
        await town.bound_within(VICTIM, "two-", 2, 700)
