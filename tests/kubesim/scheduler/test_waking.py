"""When a pod that was turned away is tried again, and when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from kubesim.kinds import Json
from tests.kubesim.scheduler.world import World, rejecting

pytestmark = pytest.mark.anyio

_SETTLED = 20.0


async def _settled(world: World) -> int:
    """Attempts so far, when nothing has happened for a while."""
    await asyncio.sleep(_SETTLED)
    return sum(world.scheduler.attempts.values())


class TestARejectionByTheExtender:
    async def test_is_repeated_once_for_the_condition_it_changed_and_then_no_more(self, world: World) -> None:
        world.add_nodes(2)
        world.extender.answers["filter"] = rejecting()
        async with world.running(extenders=True):
            world.add_pod("p")
            await _settled(world)
            assert len(world.extender.filtered()) == 2

    async def test_whose_message_changes_is_a_hot_loop(self, world: World) -> None:
        world.add_nodes(1)
        numbers = iter(range(1000))
        world.extender.answers["filter"] = lambda call: rejecting(f"reason {next(numbers)}")(call)
        async with world.running(extenders=True):
            world.add_pod("p")
            await asyncio.sleep(0.2)
            assert len(world.extender.filtered()) > 20

    @pytest.mark.parametrize(
        "wake",
        [
            lambda world: world.change_pod("p", metadata={"annotations": {"escher.dev/wake": "1"}}),
            lambda world: world.change_pod("p", metadata={"labels": {"a": "b"}}),
            lambda world: world.change_node("n1", metadata={"annotations": {"any": "thing"}}),
            lambda world: world.change_node("n1", metadata={"labels": {"any": "thing"}}),
            lambda world: world.change_node("n1", status={"allocatable": {"cpu": "3"}}),
            lambda world: world.change_node("n1", spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}),
            lambda world: world.add_node("n9"),
            lambda world: world.delete_pod("bound"),
            lambda world: world.change_pod("bound", status={"phase": "Running"}),
            lambda world: world.add_pod("another", on="n1"),
        ],
        ids=[
            "annotation",
            "label",
            "node annotation",
            "node label",
            "allocatable",
            "taint",
            "node",
            "pod gone",
            "pod changed",
            "pod bound",
        ],
    )
    async def test_ends_at_once_with(self, world: World, wake: Callable[[World], None]) -> None:
        world.add_nodes(2)
        world.add_pod("bound", on="n1")
        world.extender.answers["filter"] = rejecting()
        async with world.running(extenders=True):
            world.add_pod("p")
            await _settled(world)
            before = len(world.extender.filtered())
            wake(world)
            await world.until(lambda: len(world.extender.filtered()) > before, within=0.05)

    @pytest.mark.parametrize(
        "change",
        [
            lambda world: world.add_pod("pending", scheduler="another"),
            lambda world: world.change_node("n1", status={"images": [{"names": ["x"]}]}),
            lambda world: world.change_node("n1", spec={"unschedulable": True}),
        ],
        ids=["pending pod of another scheduler", "heartbeat", "cordon"],
    )
    async def test_is_not_touched_by(self, world: World, change: Callable[[World], None]) -> None:
        world.add_nodes(2)
        world.extender.answers["filter"] = rejecting()
        async with world.running(extenders=True):
            world.add_pod("p")
            before = await _settled(world)
            change(world)
            assert await _settled(world) == before

    async def test_is_not_touched_by_another_pending_pods_update(self, world: World) -> None:
        world.add_nodes(2)
        world.extender.answers["filter"] = rejecting()
        async with world.running(extenders=True):
            world.add_pod("p")
            world.add_pod("q")
            await _settled(world)
            before = world.extender.filtered().count("p")
            world.change_pod("q", metadata={"annotations": {"escher.dev/wake": "1"}})
            await _settled(world)
            assert world.extender.filtered().count("p") == before

    async def test_is_tried_again_if_something_happened_meanwhile(self, world: World) -> None:
        world.add_nodes(1)
        async with world.running(extenders=True):

            async def slowly(call: Json) -> object:
                if len(world.extender.filtered()) == 1:
                    world.change_node("n1", metadata={"annotations": {"any": "thing"}})
                    await asyncio.sleep(0.05)
                    return rejecting()(call)
                return {"NodeNames": call["NodeNames"]}

            world.extender.answers["filter"] = slowly
            world.add_pod("p")
            await world.until_bound("p", within=0.2)


class TestARejectionForWantOfRoom:
    @pytest.mark.parametrize(
        ("change", "wakes"),
        [
            (lambda world: world.delete_pod("bound"), True),
            (lambda world: world.change_node("n1", status={"allocatable": {"cpu": "9"}}), True),
            (lambda world: world.change_node("n1", status={"allocatable": {"cpu": "3"}}), False),
            (lambda world: world.change_node("n1", status={"allocatable": {"pods": "111"}}), False),
            (lambda world: world.add_node("n9", cpu="8"), True),
            (lambda world: world.add_node("n9", cpu="2"), False),
            (lambda world: world.change_node("n1", metadata={"annotations": {"any": "thing"}}), False),
            (lambda world: world.change_node("n1", metadata={"labels": {"any": "thing"}}), False),
            (
                lambda world: world.change_node("n1", spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}),
                True,
            ),
            (lambda world: world.change_pod("p", metadata={"annotations": {"any": "thing"}}), False),
            (lambda world: world.add_pod("another", "0", on="n1"), False),
        ],
        ids=[
            "pod gone",
            "more",
            "more but not enough",
            "more pods",
            "node",
            "small node",
            "annotation",
            "label",
            "taint",
            "own annotation",
            "pod bound",
        ],
    )
    async def test_wakes(self, world: World, change: Callable[[World], None], wakes: bool) -> None:
        world.add_node("n1", cpu="4")
        world.add_pod("bound", "4", on="n1")
        async with world.running():
            world.add_pod("p", "5")
            before = await _settled(world)
            change(world)
            assert (await _settled(world) > before) is wakes


async def test_five_minutes_without_news_are_enough(world: World) -> None:
    world.add_nodes(1)
    world.extender.answers["filter"] = rejecting()
    async with world.running(extenders=True):
        world.add_pod("p")
        await _settled(world)
        before = len(world.extender.filtered())
        await asyncio.sleep(270)
        assert len(world.extender.filtered()) == before
        await asyncio.sleep(50)
        assert len(world.extender.filtered()) == before + 1


async def test_back_off_after_errors_doubles_up_to_its_limit(world: World) -> None:
    world.add_nodes(1)
    times: list[float] = []

    def away(_call: Json) -> Json:
        times.append(world.clock.now())
        return {"Error": "away"}

    world.extender.answers["filter"] = away
    async with world.running({"podMaxBackoffSeconds": 4}, extenders=True):
        world.add_pod("p")
        await world.until(lambda: len(times) == 6, within=60)
    gaps = [round(later - earlier) for earlier, later in pairwise(times)]
    assert gaps == [2, 3, 5, 5, 5]


async def test_gates_hold_a_pod_until_the_last_is_gone(world: World) -> None:
    world.add_nodes(1)
    async with world.running(extenders=True) as scheduler:
        world.add_pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}])
        await _settled(world)
        assert scheduler.queue.place(("default", "p")) == "gated"
        world.change_pod("p", spec={"schedulingGates": [{"name": "a"}]})
        world.change_node("n1", status={"allocatable": {"cpu": "9"}})
        await _settled(world)
        assert world.extender.filtered() == []
        world.change_pod("p", spec={"schedulingGates": []})
        await world.until_bound("p", within=0.1)


async def test_a_deleted_pod_is_not_tried(world: World) -> None:
    world.add_nodes(1)
    world.extender.answers["filter"] = rejecting()
    async with world.running(extenders=True) as scheduler:
        world.add_pod("p")
        before = await _settled(world)
        world.delete_pod("p")
        world.add_node("n2")
        assert await _settled(world) == before
        assert scheduler.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}


async def test_a_terminating_pod_is_skipped_with_an_event(world: World) -> None:
    world.add_nodes(1)
    async with world.running():
        world.add_pod("p")
        world.change_pod("p", metadata={"deletionTimestamp": world.clock.stamp()})
        await world.until(lambda: world.events("FailedScheduling"))
        assert world.events("FailedScheduling") == ["skip schedule deleting pod: default/p"]
        assert world.node_of("p") is None


async def test_an_assumed_pod_that_is_deleted_frees_its_room_at_once(world: World) -> None:
    world.add_node("n1", cpu="1")

    async def never(_call: Json) -> None:
        await asyncio.Event().wait()

    async with world.running(extenders=True):
        world.extender.answers["bind"] = never
        world.add_pod("held")
        await world.until(lambda: "bind" in world.extender.verbs())
        del world.extender.answers["bind"]
        world.add_pod("next")
        await world.until_rejected("next")
        world.delete_pod("held")
        await world.until_bound("next", within=0.1)


async def test_a_pod_bound_by_somebody_else_leaves_the_queue(world: World) -> None:
    world.add_nodes(1)
    world.extender.answers["filter"] = rejecting()
    async with world.running(extenders=True) as scheduler:
        world.add_pod("p")
        await _settled(world)
        world.change_pod("p", spec={"nodeName": "n1"})
        await asyncio.sleep(0.1)
        assert scheduler.queue.place(("default", "p")) == ""


async def test_events_that_repeat_are_counted_in_one(world: World) -> None:
    world.add_nodes(1)
    world.extender.answers["filter"] = lambda call: {"Error": "away"}
    async with world.running(extenders=True):
        world.add_pod("p")
        await asyncio.sleep(60)
    # The first is about another version of the pod: its condition was written after that.
    assert world.events("FailedScheduling") == ["away", "away"]
    counts = [method for method, path, _ in world.api.writes if "/events" in path]
    assert counts == ["POST", "POST", "PATCH"]
