"""A tenant's pod of high priority says that it is of a gang: the gang's pods of low priority are no safer for that."""

from __future__ import annotations

import asyncio

import pytest

from loadtests.pods import pod
from tests.lies.town import LIAR, VICTIM, no_tenants_yet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("gang", [True, False], ids=("for a gang", "for a pod"))
@pytest.mark.parametrize("quorum", [1, 2, 4])
async def test_a_pod_of_high_priority_shields_no_others_of_its_gang(quorum: int, gang: bool) -> None:
    async with no_tenants_yet() as town:
        await town.lie(pod("guard", cpu="10m", gang="shield", quorum=quorum, priority_class="high"))
        for number in range(4):
            await town.lie(pod(f"low-{number}", cpu="7", gang="shield", quorum=quorum, priority_class="low"))
        await town.bound_within(LIAR, "", 5)
        if gang:
            await town.gang(VICTIM, "two", 2, cpu="7", priority_class="mid")
        else:
            await town.create(VICTIM, pod("two-0", cpu="7", priority_class="mid"))
        await town.bound_within(VICTIM, "two-", 1 + gang, 60)
        await asyncio.sleep(60)
        assert "guard" in town.bound(LIAR)
        assert town.simulation.application.keeper.tables.violations() == []
