"""A pod says that it stays away from pods of some label: a gang that waits takes that label, and is nowhere yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loadtests.shared.pods import pod
from tests.lies.town import LIAR, THIRD, VICTIM, no_tenants_yet

pytestmark = pytest.mark.anyio
HOST, ANYWHERE = "kubernetes.io/hostname", "kubernetes.io/os"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("where", [{}, None], ids=("from all namespaces", "from its own"))
@pytest.mark.parametrize("key", [HOST, ANYWHERE])
@pytest.mark.parametrize("gang", [False, True], ids=("pods", "gangs"))
async def test_labels_of_a_gang_that_waits_keep_no_others_away(where: Any, key: str, gang: bool) -> None:
    async with no_tenants_yet() as town:
        for number in range(4):
            await town.create(THIRD, pod(f"runs-{number}", cpu="6"))
        await town.bound_within(THIRD, "runs-", 4)
        for each in range(3):
            await town.gang(LIAR, f"wide{each}", 4, cpu="4", labels={"app": "noisy"})
        await asyncio.sleep(100)
        for number in range(2):
            about: dict[str, Any] = {"gang": "quiet", "quorum": 2} if gang else {}
            body = pod(f"quiet-{number}", cpu="0", **about)
            term = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": key}
            if where is not None:
                term["namespaceSelector"] = where
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            body["spec"]["affinity"] = {"podAntiAffinity": required}
            await town.create(VICTIM, body)
        await town.bound_within(VICTIM, "quiet-", 2)
        assert town.bound(LIAR) == {}
        assert town.simulation.application.scheduler.cache.violations() == []
