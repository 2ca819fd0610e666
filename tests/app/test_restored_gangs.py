"""A gang that ran, and an API server restored to a moment at which only a part of it was bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.app.town import WHOLE_NODE, Town
from tests.builders import pod

pytestmark = pytest.mark.anyio


async def _restored(town: Town, *, others_have_the_room: bool) -> None:
    """Two Bindings of four are undone."""
    town.job("train", 4)
    await town.until_bound(4, within=20)
    await town.pass_time(5)
    assert town.service is not None
    follower = town.service.follower
    follower.hold()
    for number, member in enumerate(sorted(town.bound())[:2]):
        before = town.named(member)
        town.server.pods[before.uid] = replace(before, node=None, attempt=None, bound_at=0.0, ready=False)
        if others_have_the_room:
            foreign = pod(f"foreign-{number}", WHOLE_NODE, scheduler="other", node=before.node)
            town.server.pods[foreign.uid] = foreign
    town.keeper.rewind_pods()
    follower.list()
    follower.go_on()


async def test_is_completed_again() -> None:
    town = Town()
    await _restored(town, others_have_the_room=False)
    assert len(town.bound()) == 2
    await town.until_bound(4, within=60)
    assert town.keeper.violations() == []


async def test_is_not_evicted_though_it_cannot_be_completed() -> None:
    town = Town()
    await _restored(town, others_have_the_room=True)
    await town.pass_time(300)
    assert len(town.bound()) == 2
    assert "GangEvicted" not in town.told()
    assert town.keeper.violations() == []
