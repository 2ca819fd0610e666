"""A kube-scheduler that calls us for those pods alone that ask for `escher.dev/managed`, as escher.yaml explains."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.names import MANAGED
from extender.simulation import Simulation
from kubesim.kinds import POD
from loadtests.pods import pod
from tests.kubesim.test_simulation import bound
from tests.kubesim.until import until

ONLY_MANAGED = {"managedResources": [{"name": MANAGED, "ignoredByScheduler": True}]}


@pytest.mark.anyio
async def test_a_gang_that_asks_for_it_is_placed_and_who_does_not_is_placed_without_us() -> None:
    async with Simulation(nodes=2, extender=ONLY_MANAGED) as simulation:
        for number in range(3):
            asks: dict[str, Any] = {"cpu": 4, MANAGED: 1}
            await simulation.create(pod(f"train-{number}", gang="train", quorum=3, **asks), POD)
        await simulation.create(pod("ordinary", cpu=1), POD)
        await until(lambda: bound(simulation, "train") == 3 and bound(simulation, "ordinary") == 1, within=10)
        tables = simulation.application.keeper.tables
        assert {each.name for each in tables.pods.values()} == {"train-0", "train-1", "train-2", "ordinary"}
        assert not tables.violations()
