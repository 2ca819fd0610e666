"""A gang that ran, and an API server restored to a moment at which only a part of it was bound."""

from __future__ import annotations

import pytest

from tests.app.town import Town

pytestmark = pytest.mark.anyio


async def _restored(town: Town, *, others_have_the_room: bool) -> None:
    """Two Bindings of four are undone."""
    town.job("train", 4)
    await town.until_bound(2, within=20)
    backup = town.store.back_up()
    await town.until_bound(4, within=20)
    await town.pass_time(5)
    town.simulation.hold_watches()
    before = town.bound()
    town.simulation.restore(backup)
    undone = [each.name for each in town.pending()]
    assert len(undone) == 2
    for number, member in enumerate(undone if others_have_the_room else ()):
        town.create(town.pod(f"foreign-{number}", scheduler="other", node=before[member]))
    town.simulation.release_watches()


async def test_is_completed_again() -> None:
    async with Town() as town:
        await _restored(town, others_have_the_room=False)
        assert len(town.bound()) == 2
        await town.until_bound(4, within=60)
        assert town.keeper.tables.violations() == []


async def test_is_not_evicted_though_it_cannot_be_completed() -> None:
    async with Town() as town:
        await _restored(town, others_have_the_room=True)
        await town.pass_time(300)
        assert len(town.bound()) == 2
        assert "GangEvicted" not in town.told()
        assert town.keeper.tables.violations() == []
