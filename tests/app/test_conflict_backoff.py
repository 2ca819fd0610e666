"""Another controller that changes our units back is answered, but not a thousand times a minute; and it is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.app.resources.conflict_backoff import ConflictBackoff
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import unavailable
from tests.app.world import World

pytestmark = pytest.mark.anyio
N1, N2 = NodeName("n1"), NodeName("n2")
DATA = ResourceKey("escher.dev/team.data")


@asynccontextmanager
async def opponent(world: World, node: NodeName = N1) -> AsyncIterator[None]:
    """It sets the key to 0 whenever the node says anything else."""

    async def oppose() -> None:
        while True:
            if world.api.nodes[node].capacity.get(DATA) != 0:
                world.api.edit_node(node, {DATA: 0})
            await asyncio.sleep(0.02)

    task = asyncio.create_task(oppose())
    try:
        yield
    finally:
        task.cancel()


def _written(world: World, node: str = "n1") -> int:
    return sum(name == node for name, _ in world.api.writer.written)


def _told(logs: list[Any]) -> list[Any]:
    return [each for each in logs if "changes a node's status back" in each["event"]]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(latency=0.005)
    made.add_nodes("n1", "n2")
    async with made.running():
        await made.set("data", 4, "n1")
        await made.quiet(1)
        yield made
    made.audit()


async def test_repairs_become_ever_rarer_and_never_end(world: World) -> None:
    counts = []
    async with opponent(world):
        for _ in range(6):
            before = _written(world)
            await world.quiet(60)
            counts.append(_written(world) - before)
    assert counts[0] <= 10, "2,000 before there was a back-off"
    assert all(1 <= count <= 2 for count in counts[1:])


async def test_it_is_told_once_what_was_found_and_who_wrote_it(world: World) -> None:
    world.api.writer.managed_by = ["gpu-operator"]
    with capture_logs() as logs:
        async with opponent(world):
            await world.quiet(600)
    (told,) = _told(logs)
    assert told["log_level"] == "warning"
    assert (told["node"], told["managers"]) == ("n1", ["gpu-operator"])
    assert (told["desired"], told["found"]) == ({DATA: 4}, {DATA: (0, 0)})


async def test_it_is_told_though_nobody_can_say_who_it_is(world: World) -> None:
    world.api.faults.append(unavailable(of="managers"))
    with capture_logs() as logs:
        async with opponent(world):
            await world.quiet(60)
    assert [each["managers"] for each in _told(logs)] == [["not known: connection refused"]]


async def test_what_is_newly_desired_is_written_at_once_all_the_same(world: World) -> None:
    async with opponent(world):
        await world.quiet(200)
        before = _written(world)
        began = world.clock.now()
        await world.set("data", 5, "n1")
        assert world.clock.now() - began < 1
        await world.set("more", 1, "n1")
        assert world.clock.now() - began < 1
        assert _written(world) - before == 2
    await world.quiet(61)
    assert world.stated("n1") == {"data": 5, "more": 1}
    world.agree()


async def test_other_nodes_are_repaired_at_once(world: World) -> None:
    await world.set("data", 4, "n2")
    async with opponent(world):
        await world.quiet(200)
        world.api.edit_node("n2", {DATA: 9})
        await world.quiet(1)
        assert world.stated("n2") == {"data": 4}
    await world.quiet(61)


async def test_some_differences_now_and_then_are_no_fight(world: World) -> None:
    with capture_logs() as logs:
        for _ in range(10):
            for units in (7, 8):
                world.api.edit_node("n1", {DATA: units})
                await world.quiet(1)
                assert world.stated("n1") == {"data": 4}
            await world.quiet(301)
    assert _told(logs) == []


async def test_when_the_other_gives_up_all_is_well_and_the_next_fight_is_told_again(world: World) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            async with opponent(world):
                await world.quiet(100)
                assert world.write_back.fights() == 1
            await world.quiet(61)
            world.agree()
            await world.quiet(300)
            assert world.write_back.fights() == 0
    assert len(_told(logs)) == 2


async def test_each_repair_is_counted() -> None:
    undone: list[None] = []
    world = World(latency=0.005, undone=lambda: undone.append(None))
    world.add_nodes("n1")
    async with world.running():
        await world.set("data", 4, "n1")
        await world.set("data", 5, "n1")
        world.api.edit_node("n1", {DATA: 7})
        await world.quiet(1)
        assert len(undone) == 1
        async with opponent(world):
            await world.quiet(60)
        assert len(undone) == _written(world) - 2


async def test_a_node_that_is_gone_is_forgotten() -> None:
    fights = ConflictBackoff()
    fights.left(N1, {DATA: 1})
    for number in range(5):
        fights.repaired(N1, float(number))
    assert fights.wait(N1, 4.0) == 4.0
    fights.forget(N1)
    assert (fights.wait(N1, 4.0), fights.is_repair(N1, {DATA: 1}, [DATA])) == (0.0, False)


async def test_nodes_that_have_left_are_forgotten(world: World) -> None:
    """Under an autoscaler each has a name of its own."""
    for each in range(30):
        name = f"node-{each}"
        world.add_nodes(name)
        await world.set("data", 4, name)
        await world.quiet(1)
        world.api.drop_node(NodeName(name))
    await world.quiet(120)
    kept = world.write_back
    assert {*kept._written, *kept._rests_until, *kept._fights.nodes()} <= {"n1", "n2"}
