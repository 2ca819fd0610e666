"""Pods get nodes: by room, in order, and with the messages of kube-scheduler where there is none."""

from __future__ import annotations

import pytest

from tests.kubesim.scheduler.world import World

pytestmark = pytest.mark.anyio


async def test_a_pod_gets_a_node_with_room(world: World) -> None:
    world.add_node("small", cpu="1")
    world.add_node("large", cpu="8")
    async with world.running():
        world.add_pod("p", "2")
        await world.until_bound("p")
    assert world.node_of("p") == "large"
    assert world.events("Scheduled") == ["Successfully assigned default/p to large"]


async def test_pods_spread_over_nodes(world: World) -> None:
    world.add_nodes(4)
    async with world.running():
        for number in range(8):
            world.add_pod(f"p{number}")
        await world.until_bound(*(f"p{number}" for number in range(8)))
    nodes = [world.node_of(f"p{number}") for number in range(8)]
    assert {nodes.count(node) for node in set(nodes)} == {2}


async def test_assumed_pods_count_before_they_are_bound(world: World) -> None:
    world.add_node("n1", cpu="1")
    async with world.running():
        world.add_pod("first")
        world.add_pod("second")
        await world.until_rejected("second")
        assert world.node_of("first") == "n1"


async def test_without_nodes_a_pod_waits_for_its_back_off(world: World) -> None:
    async with world.running():
        world.add_pod("p")
        assert await world.until_rejected("p") == "no nodes available to schedule pods"
        world.add_node("n1")
        await world.until_bound("p")
    assert 1.5 < world.clock.now() % 100 < 2.5


async def test_reasons_are_counted_and_sorted(world: World) -> None:
    world.add_node("full", cpu="1")
    world.add_node("tainted", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    world.add_node("cordoned", unschedulable=True)
    world.add_node("other", labels={"disk": "slow"})
    async with world.running():
        world.add_pod("p", "3", nodeSelector={"disk": "fast"})
        message = await world.until_rejected("p")
    assert message == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )
    assert world.events("FailedScheduling") == [message]


async def test_want_of_room_is_worded_by_resource(world: World) -> None:
    world.add_node("n1", cpu="2", pods="0", resources={"escher.dev/token": "1"})
    async with world.running():
        world.add_pod("p", "3", resources={"escher.dev/token": "2"})
        message = await world.until_rejected("p")
    assert message == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient escher.dev/token, 1 Too many pods. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


async def test_the_condition_tells_why(world: World) -> None:
    world.add_node("n1", cpu="1")
    async with world.running():
        world.add_pod("p", "2")
        await world.until_rejected("p")
    condition = world.condition("p")
    assert (condition["status"], condition["reason"], condition["observedGeneration"]) == ("False", "Unschedulable", 1)


async def test_finished_pods_take_no_room(world: World) -> None:
    world.add_node("n1", cpu="1")
    world.add_pod("done", on="n1")
    world.change_pod("done", status={"phase": "Succeeded"})
    async with world.running():
        world.add_pod("p")
        await world.until_bound("p")


async def test_a_terminating_pod_takes_room_until_it_is_gone(world: World) -> None:
    world.add_node("n1", cpu="1")
    world.lingering = True
    world.add_pod("old", on="n1")
    world.change_pod("old", metadata={"deletionTimestamp": world.clock.stamp()})
    async with world.running():
        world.add_pod("p")
        await world.until_rejected("p")
        world.delete_pod("old")
        await world.until_bound("p")


async def test_pods_of_other_schedulers_are_left_alone_and_counted(world: World) -> None:
    world.add_node("n1", cpu="1")
    world.add_pod("theirs", scheduler="another")
    async with world.running():
        world.add_pod("mine", "0500m")
        await world.until_bound("mine")
        assert world.node_of("theirs") is None


async def test_the_pod_of_higher_priority_goes_first(world: World) -> None:
    world.add_node("n1", cpu="1")
    async with world.running():
        world.add_pod("low", priority=1)
        world.add_pod("high", priority=2)
        await world.until_bound("high")
        assert world.node_of("low") is None


async def test_the_same_seed_gives_the_same_places() -> None:
    async def places() -> list[str | None]:
        world = World(seed=7)
        world.add_nodes(20)
        async with world.running():
            for number in range(30):
                world.add_pod(f"p{number}")
            await world.until_bound(*(f"p{number}" for number in range(30)))
        return [world.node_of(f"p{number}") for number in range(30)]

    assert await places() == await places()
