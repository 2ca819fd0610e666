"""A tenant makes each victim anew on its node at once, past every scheduler: how often it is evicted, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from loadtests.shared.pods import pod
from tests.kubesim.until import until
from tests.lies.town import LIAR, THIRD, VICTIM, Town, no_tenants_yet

pytestmark = pytest.mark.anyio
OWNER = "one controller"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@asynccontextmanager
async def stubborn(town: Town, owned: str, nodes: int) -> AsyncIterator[list[str]]:
    """The liar has a pod on each of these nodes, as its controller makes them; those made so far."""
    made: list[str] = []
    number = count()

    async def make(node: int) -> None:
        name = f"back-{node}-{next(number)}"
        body = pod(name, cpu="8", priority_class="low")
        body["spec"]["nodeName"] = f"node-{node}"
        if owned:
            uid = owned if owned == OWNER else name
            owner = {"apiVersion": "example.org/v1", "kind": "Thing", "name": "x", "uid": uid, "controller": True}
            body["metadata"]["ownerReferences"] = [owner]
        await town.lie(body)
        made.append(name)

    async def control() -> None:
        while True:
            for node in range(nodes):
                if not any(each["spec"].get("nodeName") == f"node-{node}" for each in town.all(LIAR).values()):
                    await make(node)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(control())
    try:
        yield made
    finally:
        task.cancel()


OWNERS = pytest.mark.parametrize("owned", [OWNER, "another each time", ""], ids=("one owner", "another", "no owner"))


@OWNERS
async def test_others_leave_in_place_of_pods_that_come_again(owned: str) -> None:
    async with no_tenants_yet() as town, stubborn(town, owned, 2) as made:
        await until(lambda: len(town.bound(LIAR)) == 2)
        for number in range(2):
            await town.create(THIRD, pod(f"low-{number}", cpu="8", priority_class="low"))
        await town.bound_within(THIRD, "low-", 2)
        await town.gang(VICTIM, "two", 2, cpu="8", priority_class="mid")
        await town.bound_within(VICTIM, "two-", 2, 30)
        assert len(made) == 4, "each was evicted once"
        assert town.simulation.application.scheduler.cache.violations() == []


@OWNERS
async def test_pods_that_come_again_are_evicted_a_few_times_an_hour_and_a_gang_waits_as_long_as_they_do(
    owned: str,
) -> None:
    """The bound of what such a tenant reaches: room that its pods really hold."""
    async with no_tenants_yet(2) as town:
        async with stubborn(town, owned, 2) as made:
            await until(lambda: len(town.bound(LIAR)) == 2)
            await town.gang(VICTIM, "two", 2, cpu="8", priority_class="mid")
            await asyncio.sleep(3600)
            assert town.bound(VICTIM) == {}
            assert 4 <= len(made) - 2 <= 8, "four preemptions in vain of two pods each, in an hour"
        # From now on who leaves does not come again.
        await town.bound_within(VICTIM, "two-", 2, 3700)
