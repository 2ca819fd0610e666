"""A tenant adds pods to its gang that take no room, of high priority or many: its others are no safer for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.gangs.preemption.preemption_limits import Bounds
from loadtests.shared.pods import pod
from tests.lies.town import LIAR, THIRD, VICTIM, Town, no_tenants_yet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("gang", [True, False], ids=("for a gang", "for a pod"))
async def test_a_pod_of_some_priority_has_no_others_evicted_in_place_of_its_gang(gang: bool) -> None:
    """The gang leaves for it too, but lower pods leave before higher ones of others."""
    async with no_tenants_yet() as town:
        await town.lie(pod("guard", cpu="10m", gang="shield", quorum=3, priority_class="mid"))
        for number in range(2):
            await town.lie(pod(f"low-{number}", cpu="7", gang="shield", quorum=3, priority_class="low"))
        await town.bound_within(LIAR, "", 3)
        await town.gang(THIRD, "between", 2, cpu="7", priority_class="between")
        await town.bound_within(THIRD, "", 2)
        if gang:
            await town.gang(VICTIM, "two", 2, cpu="7", priority_class="high")
        else:
            await town.create(VICTIM, pod("two-0", cpu="7", priority_class="high"))
        await town.bound_within(VICTIM, "two-", 1 + gang, 60)
        assert len(town.bound(THIRD)) == 2
        assert town.simulation.application.scheduler.cache.violations() == []


async def a_large_gang(town: Town, pods: int) -> None:
    for number in range(pods):
        cpu = "7" if number < 2 else "1m"
        await town.lie(pod(f"low-{number}", cpu=cpu, gang="shield", quorum=pods, priority_class="low"))
    await town.bound_within(LIAR, "", pods)


def bounded(town: Town, pods: int) -> None:
    victims = town.simulation.application.scheduler.cache.gangs.waiting.preempting.victims
    victims.bounds = replace(Bounds(), pods=pods)


async def test_many_small_pods_in_a_gang_do_not_keep_it_from_leaving() -> None:
    async with no_tenants_yet(2) as town:
        bounded(town, 20)
        await a_large_gang(town, 30)
        await town.gang(VICTIM, "two", 2, cpu="7", priority_class="high")
        await town.bound_within(VICTIM, "two-", 2, 120)
        assert town.simulation.application.scheduler.cache.violations() == []


async def test_where_a_gang_is_larger_than_the_bound_others_leave() -> None:
    async with no_tenants_yet() as town:
        bounded(town, 20)
        await a_large_gang(town, 30)
        for number in range(2):
            await town.create(THIRD, pod(f"mid-{number}", cpu="7", priority_class="mid"))
        await town.bound_within(THIRD, "mid-", 2)
        await town.gang(VICTIM, "two", 2, cpu="7", priority_class="high")
        await town.bound_within(VICTIM, "two-", 2, 60)
        assert len(town.bound(LIAR)) == 30
