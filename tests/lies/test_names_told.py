"""Who is evicted learns that it was for a higher priority, and no name of another namespace."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubesim.kinds import DISRUPTION_BUDGET, EVENT
from loadtests.shared.pods import pod
from tests.kubesim.until import until
from tests.lies.town import LIAR, VICTIM, no_tenants_yet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("by_gang", [True, False], ids=("for a gang", "with its gang, for a pod"))
@pytest.mark.parametrize("protected", [False, True], ids=("evicted", "deleted despite a budget"))
async def test_a_victim_learns_no_name_of_the_namespace_that_it_leaves_for(by_gang: bool, protected: bool) -> None:
    async with no_tenants_yet(nodes=2) as town:
        for number in range(2):
            mine = pod(f"mine-{number}", gang="mine", quorum=2, cpu="7", priority_class="low")
            # It stays to be looked at.
            mine["metadata"]["finalizers"] = ["example.com/stays"]
            await town.lie(mine)
        await town.bound_within(LIAR, "mine-", 2)
        if protected:
            budget = {"metadata": {"name": "none"}, "spec": {"maxUnavailable": 0, "selector": {}}}
            await town.lie(budget, DISRUPTION_BUDGET)
        gang: dict[str, Any] = {"gang": "secret", "quorum": 2} if by_gang else {}
        for number in range(2 if by_gang else 1):
            await town.create(VICTIM, pod(f"secret-{number}", cpu="7", priority_class="high", **gang))
        await until(lambda: town.bound(LIAR) == {}, within=60)
        await asyncio.sleep(5)
        ours = [str(each) for each in town.all(LIAR, EVENT).values() if "escher" in str(each)]
        marks = [json.dumps(each["status"]) for each in town.all(LIAR).values()]
        told = [each for each in (*ours, *marks) if "higher priority" in each]
        assert told
        assert [each for each in told if "secret" in each or f"{VICTIM}/" in each] == []
