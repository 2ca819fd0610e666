"""A renamed metric is shown under its old name as well, with the same samples."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest

from extender.adapters.metrics import OLD_NAMES, Metrics
from extender.core.safety_switches import Act
from tests.app.world import World

pytestmark = pytest.mark.anyio


def shown_of(world: World) -> dict[str, Metric]:
    registry = CollectorRegistry()
    metrics = Metrics(registry, world.scheduler.cache, world.write_back)
    metrics.withheld(Act.REFUSE)
    metrics.destroyed("part")
    assert b"escher_withheld_total{" in generate_latest(registry)
    return {each.name: each for each in registry.collect()}


@pytest.mark.parametrize("new", OLD_NAMES)
async def test_both_names_have_the_same_samples(world: World, new: str) -> None:
    shown = shown_of(world)
    old = OLD_NAMES[new]
    assert shown[new].type == shown[old].type
    values = [(each.name, each.labels, each.value) for each in shown[new].samples]
    assert values == [(each.name.replace(old, new, 1), each.labels, each.value) for each in shown[old].samples]


async def test_acts_and_evictions_are_counted(world: World) -> None:
    shown = shown_of(world)
    for name in ("escher_withheld", "escher_destroyed"):
        assert sum(each.value for each in shown[name].samples if each.name == f"{name}_total") == 1
